"""The sequential test: its error rate at every look, its power, its bounds."""

from itertools import pairwise

import numpy as np
import pytest

from lakehouse.evaluation.sequential import OutOfRange, compare, mean_within

GRID = 100


def ever_wrong(draw, mean, runs=400, length=300, alpha=0.1):
    """Share of the runs in which the true mean was thrown out at any of the looks: after every value."""
    random = np.random.default_rng(7)
    wrong = 0
    for _ in range(runs):
        low, high = mean_within(draw(random, length), alpha, GRID)  # ends that were ever passed stay passed
        wrong += not low <= mean <= high
    return wrong / runs


@pytest.mark.parametrize(
    ("draw", "mean"),
    [
        (lambda random, n: (random.random(n) < 0.5).astype(float), 0.5),
        (lambda random, n: (random.random(n) < 0.05).astype(float), 0.05),
        (lambda random, n: random.beta(2, 6, n), 0.25),
    ],
    ids=["coin", "rare", "graded"],
)
def test_the_true_mean_is_ever_thrown_out_no_more_often_than_said(draw, mean):
    assert ever_wrong(draw, mean) <= 0.1


def test_equal_versions_are_called_different_at_some_look_no_more_often_than_said():
    random = np.random.default_rng(3)
    said = 0
    for _ in range(100):
        champion, challenger = ((random.random(n) < 0.4).astype(float) for n in (250, 50))
        verdict = compare(champion, challenger, confidence=0.9).verdict(0.0)
        said += verdict != "undecided"
    assert said / 100 <= 0.1


@pytest.mark.parametrize(("rate", "verdict"), [(0.9, "not worse"), (0.1, "worse"), (0.5, "undecided")])
def test_what_differs_is_told_apart_and_what_does_not_is_not(rate, verdict):
    random = np.random.default_rng(5)
    champion, challenger = (random.random(900) < 0.5), (random.random(100) < rate)
    found = compare(champion.astype(float), challenger.astype(float))
    assert found.verdict(0.0) == verdict
    assert found.low <= rate - 0.5 <= found.high
    assert (found.champion_sessions, found.challenger_sessions) == (900, 100)


def test_a_tolerance_lets_a_version_pass_that_is_hardly_worse():
    random = np.random.default_rng(9)
    champion, challenger = ((random.random(n) < 0.5).astype(float) for n in (4000, 1500))
    found = compare(champion, challenger)
    assert (found.verdict(0.0), found.verdict(0.15)) == ("undecided", "not worse")


def test_without_rewards_nothing_is_said():
    nothing = compare([], [1.0, 0.0])
    assert (nothing.champion_mean, nothing.challenger_mean) == (None, 0.5)
    assert nothing.verdict(0.0) == "undecided"
    assert nothing.low <= -0.5 and nothing.high >= 0.5


def test_more_rewards_never_widen_the_interval():
    values = (np.random.default_rng(1).random(600) < 0.3).astype(float)
    ends = [mean_within(values[:n], 0.05) for n in (50, 200, 256, 257, 600)]
    assert all(later[0] >= earlier[0] and later[1] <= earlier[1] for earlier, later in pairwise(ends))
    assert ends[-1][0] > 0.2 and ends[-1][1] < 0.4


def test_rewards_in_other_bounds_are_compared_in_them_and_those_outside_refused():
    found = compare([-1.0] * 200, [3.0] * 200, bounds=(-1, 3))
    assert found.low > 3.5 and found.high == pytest.approx(4.0)
    with pytest.raises(
        OutOfRange, match=r"1 of 2 rewards are outside the bounds 0 to 1, the first is 2: .*--reward-range"
    ):
        compare([0.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="must be below"):
        compare([], [], bounds=(1, 0))
