"""A problem that changes is another edition: new episodes get the new one, those that were there keep what they saw."""

import pytest
from deltalake import write_deltalake

from lakehouse import store
from lakehouse.label import label
from lakehouse.planning import choose
from lakehouse.query import query
from lakehouse.records import digest, dumps, group_id, now
from lakehouse.schema import TABLES
from lakehouse.selection.select import Selection, select
from lakehouse.trajectory import trajectory
from lakehouse.write import Writer, to_arrow

GRPO = Selection(objective="grpo", rubrics=["search@2"], filter="grpo", policy_version=1)


@pytest.fixture
def old(lake, make):
    """A lake of before there were editions: its tables lack the columns. Its two episodes saw the prompt "q"."""
    batch = make.group([True, False])
    batch.land(lake)
    for table, records, added in (
        ("problems", [make.problem()], ["edition", "ungated"]),
        ("episodes", batch.episodes, ["problem_edition"]),
    ):
        data = to_arrow(table, records).drop_columns(added)
        where, split = store.uri(lake, table), list(TABLES[table].partition_by)
        write_deltalake(where, data, mode="overwrite", schema_mode="overwrite", partition_by=split, name=table)
    return lake


def prompts(lake):
    """What each episode saw, as its run's trajectories tell it."""
    found = query("select run_id, episode_id from episodes order by run_id, sample_index", lake).rows()
    return [(run, trajectory(lake, name).problem.prompt) for run, name in found]


def drawn(lake):
    return [(one.prompt, one.edition) for one in choose(lake, {"search": 1}, split="train")]


def test_a_lake_of_before_is_read_as_it_is(old):
    assert prompts(old) == [("r", "q"), ("r", "q")]
    assert drawn(old) == [("q", None)]
    label(old, "search@2")
    assert select(old, GRPO).episodes == 2


def test_a_lake_with_an_old_edition_gets_the_new_one_and_its_episodes_keep_what_they_saw(old, make):
    changed = make.problem(prompt="q, said better")
    assert Writer(old).put_problems([changed]).rows == 1
    assert drawn(old) == [("q, said better", changed.content)]
    make.batch(run="s", problem_edition=changed.content).land(old)
    assert prompts(old) == [("r", "q"), ("r", "q"), ("s", "q, said better")]
    label(old, "search@2")
    assert select(old, GRPO.model_copy(update={"run_ids": ["r"]})).episodes == 2


def test_putting_the_same_problems_again_changes_nothing(old, make):
    problems = [make.problem(), make.problem("other")]
    assert Writer(old).put_problems(problems).rows == 2  # also that which is there without an edition
    before = store.versions(old)
    again = Writer(old).put_problems([make.problem(created_at=now()), make.problem("other", created_at=now())])
    assert (again.rows, again.skipped) == (0, True)
    assert store.versions(old) == before


def test_licence_and_gates_are_those_of_the_edition_that_was_seen(lake, make):
    closed, broken, free = make.problem(allowed_uses=["evaluation"]), make.problem(null_failed=False), make.problem()
    for run, problem in (("closed", closed), ("broken", broken), ("free", free)):
        Writer(lake).put_problems([problem])
        make.group([True, False], run=run, problem_edition=problem.content).land(lake)
    label(lake, "search@2")
    made = select(lake, GRPO)
    assert (made.episodes, made.reasons) == (2, {"licence": 2, "gates_failed": 2})


def test_an_edition_that_comes_back_holds_again_and_is_there_once(lake, make):
    first, second = make.problem(), make.problem(prompt="another")
    for problem in (first, second, first):
        assert Writer(lake).put_problems([problem]).rows == 1
    assert drawn(lake) == [("q", first.content)]
    assert query("select count(*) as n from problem_editions", lake)["n"].item() == 2
    make.batch(problem_edition=first.content).land(lake)
    assert query("from filters.candidates", lake).height == 1


def test_when_a_problem_was_made_is_no_part_of_its_edition_and_everything_else_is(make):
    assert make.problem().content == make.problem(edition="x").content
    for change in ({"prompt": "x"}, {"spec": "[]"}, {"difficulty": 0.6}, {"allowed_uses": []}, {"null_failed": False}):
        assert make.problem(**change).content != make.problem().content


def test_what_was_gated_has_the_edition_that_it_had_before_there_was_a_mark_for_what_was_not(make):
    problem = make.problem()
    before = problem.model_dump(exclude={"created_at", "edition", "ungated"})
    assert problem.content == digest(dumps(before))[:16]
    assert make.problem(oracle_passed=False, ungated=True).content != make.problem(oracle_passed=False).content


def test_a_lake_of_before_takes_problems_that_are_not_gated(old, make):
    new = make.problem("new", oracle_passed=False, null_failed=False, ungated=True)
    assert Writer(old).put_problems([new, make.problem()]).rows == 2  # that of before has no edition yet
    assert dict(query("select problem_id, ungated from problems", old).rows()) == {"new": True, "p": None}
    assert drawn(old) == [("q", make.problem().content)]


def test_episodes_of_two_editions_are_no_group():
    assert len({group_id("r", "p"), group_id("r", "p", "a"), group_id("r", "p", "b")}) == 3
