"""Confidence intervals by resampling problems: samples of one problem stay together, for they are alike.

The bias-corrected and accelerated bootstrap (BCa; Efron 1987, "Better Bootstrap Confidence Intervals") over clusters (Field
and Welsh 2007), expanded for few problems as Hesterberg has it (arXiv 1411.5279, 5.1): resamples of n spread by a factor of
sqrt((n - 1) / n) too little, and their tails are the normal's where Student's are due.

A statistic is a function of sums over problems: the mean difference of pairs is the sum of differences over the number of
pairs, the self-normalised importance estimate is the sum of weighted rewards over the sum of weights.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Statistic = Callable[[Floats], Floats]  # of sums [..., columns], the last axis being the columns: [...]

AT_ONCE = 1 << 22  # counts drawn at a time
NORMAL = NormalDist()


class TooFewProblems(ValueError):
    """An interval over fewer than two problems says nothing."""


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its interval, `low` and `high`."""

    estimate: float
    low: float
    high: float
    confidence: float


def ratio(sums: Floats) -> Floats:
    """The first column over the second; NaN where that is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = np.where(sums[..., 1] != 0, sums[..., 0] / sums[..., 1], np.nan)
    return found


def interval(
    sums: Floats, of: Statistic = ratio, *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """The interval of a statistic of `sums`, [problems, columns], by so many resamples. TooFewProblems below two problems.

    The same seed gives the same interval. A resample in which the statistic is not defined does not count.
    """
    if len(sums) < 2:
        raise TooFewProblems(f"an interval needs two problems at least, and there are {len(sums)}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is between 0 and 1, and not {confidence}")
    sums = np.asarray(sums, np.float64)
    total = sums.sum(0)
    estimate = float(of(total))
    drawn = of(_resampled(sums, resamples, np.random.default_rng(seed)))
    drawn = np.sort(drawn[np.isfinite(drawn)])
    if not len(drawn) or drawn[0] == drawn[-1]:
        return Interval(estimate, estimate, estimate, confidence)
    low, high = np.quantile(drawn, _levels(drawn, estimate, of(total - sums), reach(confidence, len(sums))))
    return Interval(estimate, float(low), float(high), confidence)


def _resampled(sums: Floats, resamples: int, rng: np.random.Generator) -> Floats:
    """[resamples, columns]: sums over as many problems as there are, drawn with replacement."""
    count = len(sums)
    size = max(1, AT_ONCE // count)
    parts = [min(size, resamples - start) for start in range(0, resamples, size)]
    even = np.full(count, 1 / count)
    return np.concatenate([rng.multinomial(count, even, part).astype(np.float64) @ sums for part in parts])


def reach(confidence: float, problems: int) -> float:
    """How many standard deviations of the resamples an interval reaches to each side.

    Student's quantile for n - 1 degrees of freedom (Cornish-Fisher), times sqrt(n / (n - 1)).
    """
    z, free = NORMAL.inv_cdf((1 + confidence) / 2), problems - 1
    student = z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
    student += (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * free**3)
    return float(student * np.sqrt(problems / free))


def _levels(drawn: Floats, estimate: float, left_out: Floats, far: float) -> tuple[float, float]:
    """Which quantiles of the resamples, sorted, are the ends: shifted for bias and for a spread that grows with the value.

    `left_out` is the statistic without one problem each, `far` what `reach` gives.
    """
    below, above = (np.searchsorted(drawn, estimate, side) for side in ("left", "right"))
    share = (below + above) / 2 / len(drawn)  # a tie counts half
    bias = NORMAL.inv_cdf(min(max(share, 0.5 / len(drawn)), 1 - 0.5 / len(drawn)))
    left_out = left_out[np.isfinite(left_out)]
    away = left_out.mean() - left_out if len(left_out) else np.zeros(1)
    spread = float((away**2).sum()) ** 1.5
    pull = float((away**3).sum()) / (6 * spread) if spread else 0.0
    ends = (bias + far * side for side in (-1, 1))
    low, high = (NORMAL.cdf(bias + end / max(1e-3, 1 - pull * end)) for end in ends)
    return low, high
