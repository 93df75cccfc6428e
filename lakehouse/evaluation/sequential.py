"""Which of two versions earns more, judged while rewards come in: valid whenever one looks, and however often.

A confidence sequence of each mean by betting (Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by
betting", arXiv 2010.09686: the hedged capital process, theorem 3, with the predictable plug-in bets of equation 26). A gambler
bets against every possible mean m, fairly if m is the true one; a mean against which his capital has ever reached 1 / alpha is
out, and by Ville's inequality the true mean is thrown out with a probability of at most alpha, over all time. Nothing else is
assumed of the rewards than their bounds, and that each is fair given those before it.

The difference of two means lies between the differences of their ends, at the sum of both errors (a union bound), whatever
share of the sessions each version gets and whenever the watch ends.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Verdict = Literal["not worse", "worse", "undecided"]

GRID = 1000  # means that are bet against: the ends are exact to this part of the range, to the safe side
CUT = 0.5  # of the largest bet that cannot ruin the gambler
BLOCK = 256  # rewards at a time


class OutOfRange(ValueError):
    """A reward is outside the bounds that the comparison rests on."""


@dataclass(frozen=True)
class Comparison:
    """Two versions by their rewards so far. `low` and `high` are the ends of challenger less champion."""

    champion_sessions: int
    challenger_sessions: int
    champion_mean: float | None
    challenger_mean: float | None
    low: float
    high: float
    confidence: float

    def verdict(self, tolerance: float) -> Verdict:
        """Whether the challenger is worse by more than `tolerance`, or not, or cannot be told yet."""
        if self.low > -tolerance:
            return "not worse"
        return "worse" if self.high < -tolerance else "undecided"


def compare(
    champion: Sequence[float],
    challenger: Sequence[float],
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
    confidence: float = 0.95,
) -> Comparison:
    """Both arms in the order in which their rewards came. OutOfRange where one is not within the bounds."""
    least, most = bounds
    if not least < most:
        raise ValueError(f"the bounds of rewards are {least} and {most}: the first must be below the second")
    scaled = [_scaled(arm, least, most) for arm in (champion, challenger)]
    (low_0, high_0), (low_1, high_1) = (mean_within(arm, (1 - confidence) / 2) for arm in scaled)
    width = most - least
    return Comparison(
        champion_sessions=len(champion),
        challenger_sessions=len(challenger),
        champion_mean=float(np.mean(champion)) if len(champion) else None,
        challenger_mean=float(np.mean(challenger)) if len(challenger) else None,
        low=(low_1 - high_0) * width,
        high=(high_1 - low_0) * width,
        confidence=confidence,
    )


def mean_within(values: Floats, alpha: float, grid: int = GRID) -> tuple[float, float]:
    """The ends between which the mean of values in [0, 1] lies: for ever, with a probability of at least 1 - alpha."""
    means = (np.arange(grid) + 0.5) / grid
    bets = _bets(values, alpha)
    up, down = np.zeros(grid), np.zeros(grid)  # log capital of those who bet on more than m, and on less
    least, most = 0, grid - 1
    for start in range(0, len(values), BLOCK):
        x, bet = values[start : start + BLOCK, None], bets[start : start + BLOCK, None]
        ups = up + np.cumsum(np.log1p(np.minimum(bet, CUT / means) * (x - means)), 0)
        downs = down + np.cumsum(np.log1p(-np.minimum(bet, CUT / (1 - means)) * (x - means)), 0)
        up, down = ups[-1], downs[-1]
        # Each has half of the capital. Both rise with the distance from the mean, so what is left is an interval.
        kept = np.flatnonzero(np.maximum(ups, downs).max(0) < math.log(2 / alpha))
        if not len(kept):  # only by the grid's coarseness, or where the means move: nothing may be said
            return 0.0, 1.0
        least, most = max(least, int(kept[0])), min(most, int(kept[-1]))
        if least > most:
            return 0.0, 1.0
    return max(0.0, least / grid), min(1.0, (most + 1) / grid)


def _bets(values: Floats, alpha: float) -> Floats:
    """How much is bet on each value, known before it comes: more where values have varied little."""
    count = np.arange(1, len(values) + 1)
    means = (0.5 + np.cumsum(values)) / (count + 1)
    spread = (0.25 + np.cumsum((values - means) ** 2)) / (count + 1)
    before = np.concatenate([[0.25], spread[:-1]])
    bets: Floats = np.sqrt(2 * math.log(2 / alpha) / (before * count * np.log1p(count)))
    return bets


def _scaled(values: Sequence[float], least: float, most: float) -> Floats:
    found = np.asarray(values, np.float64)
    outside = found[(found < least) | (found > most)]
    if len(outside):
        raise OutOfRange(
            f"{len(outside)} of {len(found)} rewards are outside the bounds {least:g} to {most:g}, the first is "
            f"{outside[0]:g}: the comparison holds only within them. Give the bounds that rewards have: --reward-range"
        )
    scaled: Floats = (found - least) / (most - least)
    return scaled
