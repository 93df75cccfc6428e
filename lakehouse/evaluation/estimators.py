"""Off-policy estimates: what a policy would earn, from episodes of another one and the log-probs of both.

An episode's weight is w = prod_t pi(a_t | s_t) / mu(a_t | s_t) over its sampled tokens, pi the candidate and mu whoever
sampled; tools and problems answer both alike, so their probabilities cancel. With rewards R, over n episodes:

* `is`: importance sampling, sum(w R) / n. Unbiased, of large variance.
* `wis`: weighted (self-normalised), sum(w R) / sum(w). Biased by O(1/n), of much smaller variance. Both in Precup, Sutton and
  Singh, "Eligibility Traces for Off-Policy Policy Evaluation", ICML 2000.
* `pdis`: per decision (the same paper): each call's reward r_c is weighted by the ratios up to that call alone,
  sum_c w_{1..c} r_c. Where an episode's only reward is at its end it is `is`.
* `baseline`: `is` with a control variate, mean(b + w (R - b)) with b the mean reward of the other samples of the problem,
  of all others where there is none. It is doubly robust (Dudik, Langford and Li, arXiv 1103.4601; Jiang and Li, arXiv
  1511.03722) with a model that knows no actions: unbiased, as b does not depend on the episode, and with less variance
  where problems differ.

The effective sample size (sum w)^2 / sum w^2 (Kong 1992) says how many episodes of the candidate's own the estimate is worth.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lakehouse.evaluation.bootstrap import Floats, Interval, TooFewProblems, interval

METHODS = ("is", "wis", "pdis", "baseline")
LARGEST = 700.0  # of a log-weight; beyond it a float overflows, and no estimate is worth anything long before


@dataclass(frozen=True)
class Logged:
    """Episodes of a behaviour policy, one entry each, scored by a target policy.

    `steps` are the log-ratios of each call's tokens in order, `earned` the rewards of the calls; they add up to `rewards`.
    """

    problems: npt.NDArray[np.int64]  # number of the problem
    rewards: Floats
    steps: Sequence[Floats]
    earned: Sequence[Floats]

    @property
    def logs(self) -> Floats:
        """log w of each episode."""
        return np.array([float(np.sum(one)) for one in self.steps], np.float64)


@dataclass(frozen=True)
class Estimate:
    """One estimator's value with its interval, and the difference to what the behaviour policy earned on these episodes."""

    method: str
    value: Interval
    difference: Interval


def weights(logs: Floats) -> Floats:
    """w of each episode, without overflow."""
    return np.exp(np.clip(logs, -LARGEST, LARGEST))


def effective_samples(logs: Floats) -> float:
    """(sum w)^2 / sum w^2, between 1 and the number of episodes; 0 without any."""
    if not len(logs):
        return 0.0
    scaled = np.exp(logs - logs.max())
    return float(scaled.sum() ** 2 / (scaled**2).sum())


def terms(logged: Logged, method: str) -> tuple[Floats, Floats]:
    """Each episode's part of the numerator and of the denominator; the estimate is the ratio of their sums."""
    w = weights(logged.logs)
    ones = np.ones(len(w))
    match method:
        case "is":
            return w * logged.rewards, ones
        case "wis":
            return w * logged.rewards, w
        case "pdis":
            return np.array([_per_decision(*one) for one in zip(logged.steps, logged.earned, strict=True)]), ones
        case "baseline":
            b = others(logged.problems, logged.rewards)
            return b + w * (logged.rewards - b), ones
    raise ValueError(f"no estimator {method!r}; there are {', '.join(METHODS)}")


def others(problems: npt.NDArray[np.int64], rewards: Floats) -> Floats:
    """Per episode the mean reward of the other samples of its problem; of all other episodes where there are none."""
    counts, sums = np.bincount(problems), np.bincount(problems, rewards)
    left = counts[problems] - 1
    of_all = (rewards.sum() - rewards) / max(1, len(rewards) - 1)
    return np.where(left > 0, (sums[problems] - rewards) / np.maximum(left, 1), of_all)


def estimate(
    logged: Logged, method: str = "wis", *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Estimate:
    """The estimate by one method, with BCa intervals over problems. TooFewProblems below two problems."""
    top, bottom = terms(logged, method)
    _, numbers = np.unique(logged.problems, return_inverse=True)
    columns = [top, bottom, logged.rewards, np.ones(len(top))]
    sums = np.stack([np.bincount(numbers, column) for column in columns], 1)
    if len(sums) < 2:
        raise TooFewProblems(f"an estimate needs episodes of two problems at least, and these are of {len(sums)}")

    def value(of: Floats) -> Floats:
        return of[..., 0] / of[..., 1]

    def difference(of: Floats) -> Floats:
        return value(of) - of[..., 2] / of[..., 3]

    how = {"confidence": confidence, "resamples": resamples, "seed": seed}
    found = (interval(sums, of, **how) for of in (value, difference))  # type: ignore[arg-type]
    return Estimate(method, *found)


def _per_decision(steps: Floats, earned: Floats) -> float:
    return float((weights(np.cumsum(steps)) * earned).sum())
