"""Intervals: what they are in closed form, that they cover, and that problems and not samples are what is resampled."""

import numpy as np
import pytest

from lakehouse.evaluation.bootstrap import TooFewProblems, interval, ratio, reach


def columns(values, counts=None):
    values = np.asarray(values, float)
    return np.stack([values, np.ones(len(values)) if counts is None else np.asarray(counts, float)], 1)


def test_it_is_the_textbook_interval_of_a_mean_where_problems_are_many():
    values = np.random.default_rng(1).normal(3, 2, 200)
    found = interval(columns(values), resamples=10_000)
    error = values.std(ddof=1) / np.sqrt(len(values))
    assert found.estimate == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx(
        (values.mean() - 1.977 * error, values.mean() + 1.977 * error), abs=0.03
    )


@pytest.mark.parametrize(("problems", "student"), [(5, 2.776), (9, 2.306), (31, 2.042), (1001, 1.962)])
def test_it_reaches_as_far_as_student_has_it(problems, student):
    """The quantiles of Student's t are those of the tables."""
    assert reach(0.95, problems) == pytest.approx(student * np.sqrt(problems / (problems - 1)), rel=0.01)


def test_at_no_difference_few_candidates_are_called_worse():
    """The gate's first rule refuses an equal candidate in 2.5 % of cases: here 12 problems of one to four pairs, 600 times."""
    worse = better = 0
    for trial in range(600):
        rng = np.random.default_rng(trial)
        rates, pairs = rng.uniform(0, 1, 12), rng.integers(1, 5, 12)
        differences = rng.binomial(pairs, rates) - rng.binomial(pairs, rates)
        found = interval(columns(differences, pairs), resamples=1000, seed=trial)
        worse, better = worse + (found.high < 0), better + (found.low > 0)
    assert 0 < worse <= 27 and 0 < better <= 27  # 15 expected; 27 is three standard deviations above


def test_it_covers_what_is_true_at_its_confidence():
    """Skewed differences of 20 problems, 90 % intervals, 300 times."""
    covered = 0
    for trial in range(300):
        rng = np.random.default_rng(trial)
        found = interval(columns(rng.exponential(1, 20)), confidence=0.9, resamples=1000, seed=trial)
        covered += found.low <= 1 <= found.high
    assert 0.86 <= covered / 300 <= 0.95


def test_samples_of_one_problem_stay_together():
    """Ten samples that are all alike are worth one: repeating them changes nothing."""
    values = np.random.default_rng(2).normal(0, 1, 30)
    once, tenfold = interval(columns(values)), interval(columns(10 * values, [10] * 30))
    assert (tenfold.low, tenfold.high) == pytest.approx((once.low, once.high))
    apart = interval(columns(np.repeat(values, 10)))
    assert apart.high - apart.low < (once.high - once.low) / 2


def test_the_same_seed_gives_the_same_and_another_nearly():
    sums = columns(np.random.default_rng(3).normal(0, 1, 40))
    assert interval(sums, seed=5) == interval(sums, seed=5)
    assert interval(sums, seed=5) != interval(sums, seed=6)
    assert interval(sums, seed=5).low == pytest.approx(interval(sums, seed=6).low, abs=0.03)


def test_more_confidence_is_a_wider_interval_and_the_estimate_lies_within():
    sums = columns(np.random.default_rng(4).binomial(1, 0.2, 50))
    found = [interval(sums, confidence=c) for c in (0.5, 0.8, 0.95, 0.99)]
    widths = [one.high - one.low for one in found]
    assert widths == sorted(widths) and widths[0] > 0
    assert all(one.low <= one.estimate <= one.high for one in found)


def test_swapping_the_sides_mirrors_it():
    values = np.random.default_rng(5).choice([-1, 0, 1], 60, p=[0.2, 0.7, 0.1])
    ours, theirs = interval(columns(values), resamples=50_000), interval(columns(-values), resamples=50_000)
    assert (ours.low, ours.high) == pytest.approx((-theirs.high, -theirs.low), abs=0.01)


def test_no_difference_anywhere_has_no_width():
    found = interval(columns([0, 0, 0, 0]))
    assert (found.estimate, found.low, found.high) == (0, 0, 0)


def test_a_resample_without_pairs_does_not_count():
    found = interval(columns([1, 0], [1, 0]), resamples=1000)
    assert (found.estimate, found.low, found.high) == (1, 1, 1)
    assert np.isnan(ratio(np.array([0.0, 0.0])))


@pytest.mark.parametrize("problems", [0, 1])
def test_fewer_than_two_problems_have_no_interval(problems):
    with pytest.raises(TooFewProblems, match=f"there are {problems}"):
        interval(columns([1.0] * problems))


@pytest.mark.parametrize("confidence", [0, 1, 95])
def test_confidence_is_a_share(confidence):
    with pytest.raises(ValueError, match="between 0 and 1"):
        interval(columns([1, 2]), confidence=confidence)
