"""Which problems a run takes."""

from datetime import UTC, datetime

import pytest

from lakehouse.planning import NotEnoughProblems, available, choose
from lakehouse.records import Source
from lakehouse.write import Writer


def test_the_same_seed_draws_the_same_problems(lake, make):
    Writer(lake).append("problems", [make.problem(f"p{n}") for n in range(20)])
    drawn = [p.problem_id for p in choose(lake, {"search": 5}, split="train", seed=3)]
    assert len(drawn) == 5
    assert drawn == [p.problem_id for p in choose(lake, {"search": 5}, split="train", seed=3)]
    assert drawn != [p.problem_id for p in choose(lake, {"search": 5}, split="train", seed=4)]


@pytest.mark.parametrize("change", [{"oracle_passed": False}, {"null_failed": False}, {"allowed_uses": ["evaluation"]}])
def test_what_may_not_be_trained_on_is_not_drawn(lake, make, change):
    Writer(lake).append("problems", [make.problem(**change)])
    with pytest.raises(NotEnoughProblems, match=r"1 search problems .* and 0 are in the lake"):
        choose(lake, {"search": 1}, split="train")


@pytest.mark.parametrize("change", [{"consent": "withheld"}, {"allowed_uses": ["evaluation"]}])
def test_what_its_source_withholds_is_not_drawn_for_training(lake, make, change):
    Writer(lake).append("problems", [make.problem(), make.problem("held out", split="eval")])
    values = {
        "source": "made up",
        "licence": "MIT",
        "allowed_uses": ["training"],
        "consent": "given",
        "privacy": "allow",
    }
    about = {"retention_days": None, "declared_by": "somebody", "declared_at": datetime(2026, 1, 1, tzinfo=UTC)}
    Writer(lake).append("sources", [Source(**values | about | change)])
    assert available(lake, "search", split="train") == 0
    assert available(lake, "search", split="eval") == 1


def test_problems_that_are_not_wanted_are_neither_counted_nor_drawn(lake, make):
    Writer(lake).append("problems", [make.problem(f"p{n}") for n in range(3)])
    without = {"p0", "p2", "no such problem"}
    assert available(lake, "search", split="train", without=without) == 1
    assert [one.problem_id for one in choose(lake, {"search": 1}, split="train", without=without)] == ["p1"]


def test_a_number_below_none_is_refused(lake, make):
    Writer(lake).append("problems", [make.problem(f"p{n}") for n in range(3)])
    assert choose(lake, {"search": 0}, split="train") == []
    with pytest.raises(NotEnoughProblems, match="-1 search problems were asked for"):
        choose(lake, {"search": -1}, split="train")


def test_a_set_is_drawn_by_its_name_and_a_kind_from_all_its_sets(lake, make):
    names = ("search/debian/a", "search/debian/b", "search/debian-more/c", "search/factbook/d")
    Writer(lake).append("problems", [make.problem(name) for name in names])
    assert available(lake, "search/debian", split="train") == 2
    assert {p.problem_id for p in choose(lake, {"search/debian": 2}, split="train")} == set(names[:2])
    assert available(lake, "search", split="train") == 4
    with pytest.raises(NotEnoughProblems, match=r"3 search/debian problems .* and 2 are in the lake"):
        choose(lake, {"search/debian": 3}, split="train")


def test_what_a_model_answered_without_tools_is_not_drawn_until_it_changes(lake, make):
    Writer(lake).put_problems([make.problem("known"), make.problem("unknown"), make.problem("searched")])
    edition = {p.problem_id: p.edition for p in choose(lake, {"search": 3}, split="train")}
    for name, agent, match in (
        ("known", "closed-book", True),
        ("unknown", "closed-book", False),
        ("searched", "search", True),
    ):
        make.batch(name, agent=agent, match=match, problem_edition=edition[name]).land(lake)
    assert {p.problem_id for p in choose(lake, {"search": 2}, split="train")} == {"unknown", "searched"}
    assert available(lake, "search", split="train") == 2
    Writer(lake).put_problems([make.problem("known", prompt="another question", created_at=datetime.now(UTC))])
    assert available(lake, "search", split="train") == 3
