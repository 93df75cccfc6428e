"""Which problems a run takes."""

import pytest

from lakehouse.planning import NotEnoughProblems, choose
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


def test_a_number_below_none_is_refused(lake, make):
    Writer(lake).append("problems", [make.problem(f"p{n}") for n in range(3)])
    assert choose(lake, {"search": 0}, split="train") == []
    with pytest.raises(NotEnoughProblems, match="-1 search problems were asked for"):
        choose(lake, {"search": -1}, split="train")
