"""Which groups a loop plays: what was broken off first, then wave after wave."""

import pytest

from lakehouse.planning import NotEnoughProblems
from lakehouse.query import query
from lakehouse.records import Problem, now
from lakehouse.write import Writer
from tasks.improve import LoopRunning, Waves, alone, drawable
from tasks.rollout import Draw


def problem(name, kind="search", title="t"):
    gates = {"oracle_passed": True, "null_failed": True}
    about = {
        "source": "made up",
        "split": "train",
        "prompt": "q",
        "spec": "{}",
        "licence": "CC0-1.0",
        "difficulty": 0.5,
    }
    return Problem(
        problem_id=f"{kind}/{name}", kind=kind, title=title, allowed_uses=["training"], created_at=now(), **about, **gates
    )  # fmt: skip


@pytest.fixture
def waves(monkeypatch, tmp_path):
    """Makes what a process knows of the loop L, of three search problems and one of swe per wave."""
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    Writer().put_problems([problem(f"s{n}") for n in range(6)] + [problem(f"w{n}", "swe") for n in range(3)])
    draw = Draw("L", {"search": 3, "swe": 1}, "train", 2, "policy", "train", 7, 1.0)

    def process():
        made = Waves("L", draw)
        made.recall()
        return made

    return process


def names(groups):
    return [group.problem_id for group in groups]


def runs(groups):
    return [group.todo[0].run_id for group in groups]


def test_a_wave_holds_what_was_asked_for_and_is_a_run_of_its_own(waves):
    drawn = waves().begin(8, ())
    assert runs(drawn) == ["L-1"] * 4 + ["L-2"] * 4
    assert [sum(name.startswith("search") for name in names(drawn[at : at + 4])) for at in (0, 4)] == [3, 3]
    assert len({group.group_id for group in drawn}) == 8
    assert all([one.sample_index for one in group.todo] == [0, 1] for group in drawn)
    rows = query("select loop_id, run_id, count(*) as n from dispatches group by all order by all").to_dicts()
    assert rows == [{"loop_id": "L", "run_id": f"L-{wave}", "n": 8} for wave in (1, 2)]


def test_a_loop_that_comes_back_plays_the_very_groups_that_it_wrote_down(waves):
    first = waves()
    one_by_one = {group.group_id for _ in range(6) for group in first.begin(1, ())}
    assert {group.group_id for group in waves().begin(6, ())} == one_by_one


def test_what_was_broken_off_comes_first_and_the_wave_goes_on(waves):
    begun = waves().begin(2, ())
    again = waves()
    drawn = again.begin(5, ())
    assert {group.group_id for group in drawn[:2]} == {group.group_id for group in begun}
    assert runs(drawn) == ["L-1"] * 4 + ["L-2"]
    assert len(query("from dispatches")) == 10


def test_of_a_problem_that_changed_what_was_broken_off_is_left_as_it_is(waves):
    (begun,) = waves().begin(1, ())
    kind, _, name = begun.problem_id.partition("/")
    Writer().put_problems([problem(name, kind, title="another")])
    drawn = waves().begin(8, ())
    assert begun.group_id not in {group.group_id for group in drawn}


def test_poisoned_problems_are_drawn_in_no_wave_and_not_played_again(waves):
    begun = waves().begin(4, ())
    without = set(names(begun)[:1])
    drawn = waves().begin(8, without)
    assert not without & set(names(drawn))


def test_where_too_few_problems_of_a_set_are_left_for_a_wave_it_is_smaller(waves):
    without = {"swe/w0", "swe/w1", "swe/w2"} | {f"search/s{n}" for n in range(4)}
    drawn = waves().begin(5, without)
    assert set(names(drawn)) == {"search/s4", "search/s5"}
    assert runs(drawn) == ["L-1"] * 2 + ["L-2"] * 2 + ["L-3"]
    assert len({group.group_id for group in drawn}) == 5


def test_where_no_problem_is_left_that_is_said(waves):
    every = {f"search/s{n}" for n in range(6)} | {f"swe/w{n}" for n in range(3)}
    with pytest.raises(NotEnoughProblems, match="no problem is left to draw in loop L: 9 are not drawn any more"):
        waves().begin(1, every)


def test_how_many_can_be_drawn_is_what_the_scarcest_set_has_where_that_is_too_few(waves):
    draw = waves().draw
    assert drawable(draw) == 9
    assert drawable(Draw("L", {"search": 3, "swe": 4}, "train", 2, "policy", "train", 7, 1.0)) == 3


def test_one_loop_at_a_time_runs_in_a_home(waves, monkeypatch):
    monkeypatch.setattr("tasks.improve.LOCKED_S", 0.1)
    with alone(), pytest.raises(LoopRunning, match=r"process \d+ runs a loop here already"), alone():
        pass
    with alone():
        pass
