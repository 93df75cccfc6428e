"""Off-policy estimators against closed form: every outcome of a small bandit, weighted by how likely it is."""

import itertools

import numpy as np
import pytest

from lakehouse.evaluation.bootstrap import TooFewProblems
from lakehouse.evaluation.estimators import (
    METHODS,
    Logged,
    effective_samples,
    estimate,
    others,
    terms,
    weights,
)

MU, PI = np.array([0.75, 0.25]), np.array([0.4, 0.6])  # of pulling arm 0 or 1
PAYS = np.array([0.2, 0.9])
TRUE = float(PI @ PAYS)


def logged(arms, problems=None, pays=PAYS):
    arms = np.asarray(arms)
    steps = [np.array([np.log(PI[arm] / MU[arm])]) for arm in arms]
    rewards = pays[arms]
    numbers = np.arange(len(arms)) if problems is None else np.asarray(problems)
    return Logged(numbers, rewards, steps, [np.array([reward]) for reward in rewards])


def value(log, method):
    top, bottom = terms(log, method)
    return top.sum() / bottom.sum()


def expected(method, pulls, problems=None):
    """The estimator's mean over every sequence of pulls of the behaviour policy, exactly."""
    total = 0.0
    for arms in itertools.product([0, 1], repeat=pulls):
        total += np.prod(MU[list(arms)]) * value(logged(arms, problems), method)
    return total


@pytest.mark.parametrize("method", ["is", "pdis", "baseline"])
@pytest.mark.parametrize("problems", [None, [0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 1, 1]])
def test_it_is_unbiased_on_a_two_armed_bandit(method, problems):
    assert expected(method, 4, problems) == pytest.approx(TRUE, abs=1e-12)


def test_the_weighted_one_is_biased_and_ever_less_so():
    gaps = [abs(expected("wis", pulls) - TRUE) for pulls in (1, 2, 4, 8)]
    assert gaps[0] == pytest.approx(abs(MU @ PAYS - TRUE))  # of one pull it is what was observed
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[3] < gaps[0] / 5


def test_by_hand():
    """Arm 0 has weight 8/15, arm 1 weight 12/5; pulled 0, 0, 1 they paid 0.2, 0.2, 0.9."""
    log = logged([0, 0, 1])
    assert value(log, "is") == pytest.approx((2 * 8 / 15 * 0.2 + 12 / 5 * 0.9) / 3)
    assert value(log, "wis") == pytest.approx((2 * 8 / 15 * 0.2 + 12 / 5 * 0.9) / (2 * 8 / 15 + 12 / 5))
    w = np.array([8 / 15, 8 / 15, 12 / 5])
    assert effective_samples(np.log(w)) == pytest.approx(w.sum() ** 2 / (w**2).sum())


@pytest.mark.parametrize("method", METHODS)
def test_of_the_policy_that_sampled_it_is_what_was_observed(method):
    rewards = np.array([1.0, 0.0, 0.0, 1.0, 1.0])
    zero = [np.zeros(2)] * 5
    log = Logged(np.array([0, 0, 1, 1, 2]), rewards, zero, [np.array([0.0, reward]) for reward in rewards])
    assert value(log, method) == pytest.approx(rewards.mean())
    found = estimate(log, method, resamples=1000)
    assert (found.difference.low, found.difference.high) == pytest.approx((0, 0), abs=1e-12)
    assert effective_samples(log.logs) == pytest.approx(5)


def test_a_reward_that_all_arms_pay_is_told_without_variance_by_baseline_and_weighted():
    log = logged([0, 1, 0, 1], [0, 0, 1, 1], pays=np.array([0.7, 0.7]))
    assert value(log, "baseline") == pytest.approx(0.7)
    assert value(log, "wis") == pytest.approx(0.7)
    assert value(log, "is") != pytest.approx(0.7)


def test_the_baseline_lowers_the_variance_where_problems_differ():
    """Four problems that pay 0, 1, 2, 3 and a bit for arm 1: exact variances over every pull of two samples each."""
    found = {}
    for method in ("is", "baseline"):
        moments = np.zeros(2)
        for arms in itertools.product([0, 1], repeat=4):
            log = logged(arms, [0, 0, 1, 1])
            log = Logged(log.problems, log.rewards + 5 * log.problems, log.steps, log.earned)
            moments += np.prod(MU[list(arms)]) * value(log, method) ** np.array([1, 2])
        assert moments[0] == pytest.approx(TRUE + 2.5)
        found[method] = moments[1] - moments[0] ** 2
    assert found["baseline"] < found["is"] / 3


def test_per_decision_weighs_a_call_by_what_came_before_it_alone():
    """Two calls, each a pull that pays at once: exactly unbiased, and with less variance than whole-episode weights."""
    found = {}
    for method in ("is", "pdis"):
        moments = np.zeros(2)
        for arms in itertools.product([0, 1], repeat=2):
            chosen = list(arms)
            log = Logged(np.array([0]), PAYS[chosen].sum(keepdims=True), [np.log(PI / MU)[chosen]], [PAYS[chosen]])
            moments += np.prod(MU[chosen]) * value(log, method) ** np.array([1, 2])
        assert moments[0] == pytest.approx(2 * TRUE)
        found[method] = moments[1] - moments[0] ** 2
    assert found["pdis"] < found["is"]


def test_the_others_of_a_problem_are_its_baseline_and_all_others_of_a_single_one():
    found = others(np.array([0, 0, 0, 1]), np.array([1.0, 2.0, 3.0, 10.0]))
    assert found.tolist() == [2.5, 2.0, 1.5, 2.0]
    assert others(np.array([0]), np.array([5.0])).tolist() == [0.0]


def test_effective_samples_are_between_one_and_all_whatever_the_scale():
    assert effective_samples(np.zeros(7)) == pytest.approx(7)
    assert effective_samples(np.array([0.0, -900.0])) == pytest.approx(1)
    assert effective_samples(np.array([-5000.0, -5000.0])) == pytest.approx(2)  # no underflow
    assert effective_samples(np.zeros(0)) == 0
    assert np.isfinite(weights(np.array([1e6, -1e6]))).all()


def test_its_interval_covers_the_truth():
    """32 pulls, 200 times."""
    covered = 0
    for trial in range(200):
        arms = np.random.default_rng(trial).choice(2, 32, p=MU)
        found = estimate(logged(arms), "wis", resamples=1000, seed=trial).value
        covered += found.low <= TRUE <= found.high
    assert covered / 200 >= 0.9


def test_one_problem_is_no_estimate_and_an_unknown_method_is_named():
    with pytest.raises(TooFewProblems, match="of 1"):
        estimate(logged([0, 1], [3, 3]))
    with pytest.raises(ValueError, match="no estimator 'magic'; there are is, wis"):
        terms(logged([0]), "magic")
