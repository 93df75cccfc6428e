"""Off-policy evaluation: what a version would earn, told from episodes that other versions played.

It costs a forward pass over stored tokens and no rollout. It is worth as much as its effective sample size, and refused below
a minimum of that: weights multiply over hundreds of tokens, and a version far from the sampler has none left.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from lakehouse.evaluation.estimators import METHODS, effective_samples, estimate, weights
from lakehouse.evaluation.logged import Log, Of, ratios
from lakehouse.evaluation.measure import Values, ends


class TooFewEffectiveSamples(ValueError):
    """The estimate is worth fewer episodes than asked for. `estimated` is all that can be said."""

    def __init__(self, estimated: "Estimated", least: float) -> None:
        self.estimated = estimated
        super().__init__(
            f"no estimate of {estimated.name} version {estimated.version}: {estimated.episodes} episodes of "
            f"{_versions(estimated.sampled_by)} are worth {estimated.effective_samples:.1f} of its own, and {least:g} are asked "
            f"for. It is {estimated.divergence:.3g} nats per token away from who sampled them: take episodes of a version "
            "nearer to it, or more of them, or let it play"
        )


class Means(BaseModel):
    """One estimator's value with its interval, and the difference to what was observed."""

    value: float
    low: float
    high: float
    difference: float
    difference_low: float
    difference_high: float


class Estimated(BaseModel):
    """What is known of a version from others' episodes. `estimates` by method: is, wis, pdis, baseline."""

    model_config = ConfigDict(frozen=True)

    name: str
    version: int
    run_ids: list[str]
    of: Of
    sampled_by: dict[str, int]  # episodes by the version that played them
    episodes: int
    problems: int
    left_out: dict[str, int]  # episodes by why they cannot be weighed
    tokens: int
    temperature: float
    observed: float  # mean over the same episodes, as they were played
    effective_samples: float
    mean_weight: float  # 1, but for chance: far from it, log-probs are not of the same distribution
    largest_share: float  # of all weight, on one episode
    divergence: float  # mean log(mu / pi) per token: an estimate of KL(mu | pi), in nats
    confidence: float
    estimates: dict[str, Means]

    @property
    def values(self) -> Values:
        """Under the gate's names for metrics, by the self-normalised estimator."""
        told = {"effective_samples": self.effective_samples}
        if "wis" not in self.estimates:
            return told
        wis = self.estimates["wis"]
        return told | {
            "offpolicy_success": wis.value,
            "offpolicy_difference": wis.difference,
            "offpolicy_difference_low": wis.difference_low,
            "offpolicy_difference_high": wis.difference_high,
        }


def evaluate(
    log: Log,
    scored: Sequence[npt.NDArray[np.float64]],
    *,
    name: str,
    version: int,
    run_ids: Sequence[str],
    of: Of = "success",
    min_effective_samples: float,
    confidence: float = 0.95,
    resamples: int = 10_000,
) -> Estimated:
    """Estimates by every method. `scored[i]`: the version's log-probs of row i's sampled tokens, at the log's temperature.

    TooFewEffectiveSamples below the minimum, with the number.
    """
    logged = ratios(log, scored)
    logs = logged.logs
    tokens = sum(len(one) for one in scored)
    about = Estimated(
        name=name,
        version=version,
        run_ids=list(run_ids),
        of=of,
        sampled_by={
            str(key): count for key, count in log.episodes["model_version"].value_counts(sort=True).iter_rows()
        },
        episodes=log.episodes.height,
        problems=log.episodes["problem_id"].n_unique(),
        left_out=log.left_out,
        tokens=tokens,
        temperature=log.temperature,
        observed=float(logged.rewards.mean()),
        effective_samples=effective_samples(logs),
        mean_weight=float(weights(logs).mean()),
        largest_share=float(np.exp(logs.max() - _logsumexp(logs))),
        divergence=float(-logs.sum() / max(1, tokens)),
        confidence=confidence,
        estimates={},
    )
    if about.effective_samples < min_effective_samples:
        raise TooFewEffectiveSamples(about, min_effective_samples)
    steps = of == "reward" and bool(log.earned.any())
    estimates = {}
    for method in METHODS:
        if method == "pdis" and not steps:
            continue  # it is `is`
        found = estimate(logged, method, confidence=confidence, resamples=resamples)
        estimates[method] = Means.model_validate(
            dict(zip(("value", "low", "high"), ends("value", found.value).values(), strict=True))
            | ends("difference", found.difference)
        )
    return about.model_copy(update={"estimates": estimates})


def _logsumexp(logs: npt.NDArray[np.float64]) -> float:
    most = float(logs.max())
    return most + float(np.log(np.exp(logs - most).sum()))


def _versions(sampled_by: dict[str, int]) -> str:
    told = [key for key in sampled_by if key != "None"]
    return f"version {', '.join(told)}" if told else "no known version"
