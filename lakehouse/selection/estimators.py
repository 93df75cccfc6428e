"""Advantages: how far a reward is above what was to be expected, as the objective that trains on them defines it.

| estimator | advantage of an episode with reward R |
|---|---|
| `none` | 1: a demonstration |
| `grpo` | (R - mean) / (std + 1e-4) over the group (DeepSeekMath, arXiv 2402.03300) |
| `dr_grpo` | R - mean over the group, never divided by a deviation (2503.20783) |
| `rloo` | R - mean over the others of the group (2402.14740) |
| `reinforce_pp` | (R - mean) / (std + 1e-4) over the whole set (REINFORCE++, 2501.03262) |
| `reinforce_pp_baseline` | R - mean over the group, then divided by the deviation of that over the whole set (same) |
| `reward` | R: the trainer's critic makes the advantage (PPO, 1707.06347) |
| `pairs` | +1 for the best of the group, -1 for the worst; the others are left out (DPO, 2305.18290) |

Everything is counted over scored episodes, not rows, tokens or calls: a long episode shifts no mean. A group is what the filters
left something of, with all its scored episodes, kept or not.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, model_validator

Estimator = Literal["none", "grpo", "dr_grpo", "rloo", "reinforce_pp", "reinforce_pp_baseline", "reward", "pairs"]

STEPWISE: frozenset[Estimator] = frozenset({"grpo", "dr_grpo", "rloo", "reinforce_pp", "reinforce_pp_baseline"})
STD_EPSILON = 1e-4  # keeps the advantage of nearly constant groups finite

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Overlong(BaseModel):
    """Soft punishment of long episodes, taken off the reward before any advantage (DAPO, arXiv 2503.14476, eq. 13).

    None up to `limit - buffer` sampled tokens, then rising evenly to `penalty` at `limit`, and no further.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    limit: int = Field(ge=1, description="Sampled tokens of an episode at which the punishment is whole.")
    buffer: int = Field(ge=1, description="Tokens before the limit over which it rises.")
    penalty: float = Field(default=1.0, gt=0)

    @model_validator(mode="after")
    def _consistent(self) -> "Overlong":
        if self.buffer > self.limit:
            raise ValueError(f"overlong: the buffer of {self.buffer} tokens is longer than the limit of {self.limit}")
        return self

    def punishment(self) -> pl.Expr:
        """At most 0, from n_completion_tokens."""
        over = (pl.col("n_completion_tokens") - (self.limit - self.buffer)) / self.buffer
        return -self.penalty * over.clip(0, 1)


def estimated(episodes: pl.DataFrame, estimator: Estimator) -> pl.DataFrame:
    """`episodes` with `advantage`, from position, group_id, keep, reason, outcome and `shaped`, the reward that counts.

    A kept episode that has nothing to be compared with is left out as `singleton_group`; what `pairs` leaves out is in `paired`.
    """
    if estimator == "pairs":
        return paired(episodes)
    told = episodes.with_columns(advantage=_of_outcome(estimator))
    alone = pl.col("keep") & pl.col("advantage").is_null()
    return left_out(told, alone, "singleton_group")


def left_out(episodes: pl.DataFrame, which: pl.Expr, reason: str) -> pl.DataFrame:
    """Those of `which` are no longer kept, for this reason."""
    return episodes.with_columns(
        keep=pl.col("keep") & ~which, reason=pl.when(which).then(pl.lit(reason)).otherwise(pl.col("reason"))
    )


def _of_outcome(estimator: Estimator) -> pl.Expr:
    reward = pl.col("shaped")  # NULL where not scored: polars leaves NULLs out of mean, std and count
    mean, n = reward.mean().over("group_id"), reward.count().over("group_id")
    pooled = pl.col("keep").any().over("group_id")
    compared = pl.when(n > 1)
    match estimator:
        case "grpo":
            return (reward - mean) / (reward.std(ddof=1).over("group_id") + STD_EPSILON)
        case "dr_grpo":
            return compared.then(reward - mean)
        case "rloo":
            return compared.then((reward - mean) * n / (n - 1))
        case "reinforce_pp":
            return (reward - reward.filter(pooled).mean()) / (reward.filter(pooled).std(ddof=1) + STD_EPSILON)
        case "reinforce_pp_baseline":
            return compared.then((reward - mean) / ((reward - mean).filter(pooled).std(ddof=1) + STD_EPSILON))
        case "reward":
            return reward
        case _:
            return pl.lit(1.0)


def paired(episodes: pl.DataFrame) -> pl.DataFrame:
    """Of each group the best kept episode with advantage 1 and the worst with -1; the earlier of equals.

    Best and worst go by the outcome, and by the shaped reward only among equal outcomes. Left out are `singleton_group`,
    `zero_variance_group` (all outcomes alike: nothing is better) and, of the groups that make a pair, `not_in_pair`.
    """
    kept = episodes.filter("keep").select("position", "group_id", "outcome", "shaped")
    falling = kept.sort(["outcome", "shaped", "position"], descending=[True, True, False])
    rising = kept.sort(["outcome", "shaped", "position"])
    ends = falling.group_by("group_id").agg(best=pl.col("position").first(), top=pl.col("outcome").first(), n=pl.len())
    ends = ends.join(
        rising.group_by("group_id").agg(worst=pl.col("position").first(), bottom=pl.col("outcome").first()),
        on="group_id",
    )
    told = episodes.join(ends, on="group_id", how="left", maintain_order="left").with_columns(
        advantage=pl.when(pl.col("position") == pl.col("best"))
        .then(1.0)
        .when(pl.col("position") == pl.col("worst"))
        .then(-1.0)
    )
    keep = pl.col("keep")
    told = left_out(told, keep & (pl.col("n") < 2), "singleton_group")
    told = left_out(told, keep & (pl.col("top") - pl.col("bottom") < 1e-6), "zero_variance_group")
    told = left_out(told, keep & pl.col("advantage").is_null(), "not_in_pair")
    return told.drop("best", "worst", "top", "bottom", "n")


def without_broken_pairs(episodes: pl.DataFrame, cut: Ints) -> pl.DataFrame:
    """A pair whose one episode lost a row (`cut`: positions) is no comparison of two whole answers: `partner_too_long`.

    The episode that lost it stays in question, as `too_long`.
    """
    lost = pl.col("position").is_in(cut)
    broken = episodes.filter(pl.col("keep") & lost)["group_id"].unique().to_list()
    told = left_out(episodes, pl.col("keep") & lost, "too_long")
    return left_out(told, pl.col("keep") & pl.col("group_id").is_in(broken), "partner_too_long")


def step_advantages(episode: Ints, group: Ints, credit: Floats, estimator: Estimator = "grpo") -> Floats:
    """The advantage of each call from its credit; NaN without. Every episode weighs the same, however many its calls.

    A mean is over episodes of the mean over an episode's calls, a deviation likewise, as a sample's: where all calls of an
    episode have its reward as their credit, this is the advantage of the outcome.
    """
    everywhere = np.zeros_like(group)
    told = _statistics(episode, everywhere if estimator == "reinforce_pp" else group, credit)
    centred, n = pl.col("credit") - pl.col("mean"), pl.col("episodes")
    compared = pl.when(n > 1)
    match estimator:
        case "grpo" | "reinforce_pp":
            advantage = centred / (pl.col("std") + STD_EPSILON)
        case "dr_grpo":
            advantage = compared.then(centred)
        case "rloo":
            advantage = compared.then(pl.col("credit") - (pl.col("mean") * n - pl.col("own")) / (n - 1))
        case "reinforce_pp_baseline":
            off = _floats(told.select(compared.then(centred)))
            told = _statistics(episode, everywhere, off)
            advantage = pl.col("credit") / (pl.col("std") + STD_EPSILON)
        case _:
            raise ValueError(f"advantage={estimator} has no credit by steps")
    return _floats(told.select(advantage))


def _statistics(episode: Ints, group: Ints, credit: Floats) -> pl.DataFrame:
    """Per call: credit, `own` mean of its episode, and the group's mean, std and number of episodes with credit."""
    calls = pl.DataFrame({"episode": episode, "group": group, "credit": credit}).with_columns(
        pl.col("credit").fill_nan(None)
    )
    per_episode = calls.drop_nulls("credit").group_by("episode", "group").agg(own=pl.col("credit").mean())
    mean = per_episode.group_by("group").agg(mean=pl.col("own").mean(), episodes=pl.len())
    apart = (
        calls.drop_nulls("credit")
        .join(mean, on="group")
        .group_by("episode", "group")
        .agg(square=((pl.col("credit") - pl.col("mean")) ** 2).mean())
        .group_by("group")
        .agg(squares=pl.col("square").sum())
    )
    known = mean.join(apart, on="group").with_columns(std=(pl.col("squares") / (pl.col("episodes") - 1)).sqrt())
    return calls.join(known, on="group", how="left", maintain_order="left").join(
        per_episode, on=["episode", "group"], how="left", maintain_order="left"
    )


def _floats(told: pl.DataFrame) -> Floats:
    return told.to_series().fill_null(float("nan")).to_numpy().astype(np.float64)
