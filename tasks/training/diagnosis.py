"""Why a run is not learning, in words: pure functions over the entries of `metrics.jsonl`. Imports no torch.

A notebook asks it as the trainer does: `diagnose(history(folder / "metrics.jsonl"))`. Thresholds are far from what runs that
learn show, so silence means that none of these is the reason, not that the run learns.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

Entry = Mapping[str, Any]  # a line of metrics.jsonl; step 0 is the look before the first update

ALMOST_ALL = 0.9
FEW_TRAINED = 0.01  # of the tokens that were read
KL_LIMIT = 1.0  # nats per token that the policy went away from the proximal one since the first step
ENTROPY_LEFT = 0.1  # of the entropy at the first step
ENTROPY_LOW = 0.1  # nats per token
GRADIENT_NONE = 1e-7
SAMPLE_LEFT = 0.1  # effective sample size, as a share of the tokens
OLD = 2.0  # versions


@dataclass(frozen=True)
class Diagnosis:
    """One reason why the policy does not get better."""

    name: str
    cause: str  # with the numbers it was seen in
    remedy: str

    def __str__(self) -> str:
        return f"not learning, {self.name}: {self.cause}. {self.remedy}"


def history(file: Path) -> list[dict[str, Any]]:
    """The entries of a run's `metrics.jsonl`, in their order; none where the run did not come so far.

    A last line without its end is left out: it is being written, or a kill or a full disk cut it off.
    """
    if not file.exists():
        return []
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.endswith("\n")]


def diagnose(entries: Sequence[Entry]) -> list[Diagnosis]:
    """What keeps the run of these entries from learning, the most direct cause first; [] where nothing is wrong.

    Looked at is the last third of the steps, so that a bad start which the run left behind is forgiven.
    """
    steps = [entry for entry in entries if "loss" in entry]
    found = [rule(steps) for rule in _CAUSES] if steps else []
    found = [_skipped(entries), *found]
    causes = [one for one in found if one]
    return causes or [one for one in [_no_gradient(steps)] if one]


def _mean(steps: Sequence[Entry], name: str) -> float | None:
    """The mean over the last third; None where no step has it."""
    late = steps[-max(1, len(steps) // 3) :]
    values = [float(entry[name]) for entry in late if name in entry]
    return fmean(values) if values else None


def _skipped(entries: Sequence[Entry]) -> Diagnosis | None:
    lost = [entry for entry in entries if "skipped" in entry]
    taken = [entry for entry in entries if "loss" in entry]
    if not lost or len(lost) <= len(taken):
        return None
    return Diagnosis(
        "steps skipped",
        f"{len(lost)} of {len(lost) + len(taken)} steps had a loss or gradient that is NaN or infinite",
        "Look at the rows that the trainer named; lower the learning rate where it began after some good steps",
    )


def _rate_zero(steps: Sequence[Entry]) -> Diagnosis | None:
    if any(entry.get("learning_rate") for entry in steps):
        return None
    return Diagnosis("learning rate 0", "no step changed a weight", "Set learning_rate, or leave it to the recipe")


def _no_spread(steps: Sequence[Entry]) -> Diagnosis | None:
    share = _mean(steps, "advantage/zero_share")
    if share is None or share < ALMOST_ALL:
        return None
    return Diagnosis(
        "no spread",
        f"{share:.1%} of the trained tokens have an advantage of 0: groups have one episode, or all their episodes ended alike",
        "Take more samples per problem, problems of another difficulty (`max_difficulty`), or a temperature above 0; "
        "the filter `grpo` leaves such groups out",
    )


def _masked_away(steps: Sequence[Entry]) -> Diagnosis | None:
    seen, trained, dropped = (_mean(steps, name) for name in ("tokens_seen", "tokens_trained", "importance_masked"))
    if seen and trained is not None and trained / seen < FEW_TRAINED:
        return Diagnosis(
            "masked away",
            f"{trained / seen:.2%} of the tokens read are trained, the rest is context",
            "See `lakeloop ledger` for why tokens are masked; where an agent's prompt is long, train more of its turns per row",
        )
    if dropped is not None and dropped > ALMOST_ALL:
        return Diagnosis(
            "masked away",
            f"the off-policy correction drops {dropped:.1%} of the trained tokens: their ratio to the sampler is out of bounds",
            "Train on fresher rows, check `agreement/`, or widen the correction's bounds",
        )
    return None


def _all_clipped(steps: Sequence[Entry]) -> Diagnosis | None:
    share = _mean(steps, "clip_fraction")
    if share is None or share < ALMOST_ALL:
        return None
    return Diagnosis(
        "everything clipped",
        f"{share:.1%} of the tokens with an advantage are beyond the clip bounds, where the objective has no gradient",
        "Lower the learning rate or the passes over the rows, recompute the proximal log-probs, or train on fresher rows",
    )


_ORIGINS = {"behaviour": "the sampler", "approximated": "between the sampler and where the run began"}


def _kl_explosion(steps: Sequence[Entry]) -> Diagnosis | None:
    kl = _mean(steps, "kl_to_proximal")
    first = float(steps[0].get("kl_to_proximal", 0.0))
    if kl is None or kl - first < KL_LIMIT:  # rows that were far off from the start are stale, or another model's
        return None
    origin = _ORIGINS.get(steps[0].get("proximal", ""), "where the run began")
    return Diagnosis(
        "KL explosion",
        f"the policy is {kl:.3g} nats per token from {origin}, and went there from {first:.3g}",
        "Lower the learning rate, clip closer, or add a KL penalty towards a reference",
    )


def _entropy_collapse(steps: Sequence[Entry]) -> Diagnosis | None:
    if not any("ratio" in entry for entry in steps):
        return None  # demonstrations are meant to make the policy sure
    first, last = float(steps[0]["entropy"]), _mean(steps, "entropy")
    if last is None or last > ENTROPY_LOW or last > ENTROPY_LEFT * first:
        return None
    return Diagnosis(
        "entropy collapse",
        f"the entropy fell from {first:.3g} to {last:.3g} nats per token: the policy says one thing only, and explores nothing",
        "Lower the learning rate, add an entropy bonus, raise the upper clip bound, or go back to an earlier version",
    )


def _sample_collapse(steps: Sequence[Entry]) -> Diagnosis | None:
    share = _mean(steps, "effective_sample_size")
    if share is None or share > SAMPLE_LEFT:
        return None
    return Diagnosis(
        "effective sample size collapsed",
        f"importance weights make the tokens worth {share:.1%} of their number: a few of them decide every step",
        "Train on fresher rows, truncate the weights closer, and check `agreement/`: the sampler may be another model",
    )


def _too_old(steps: Sequence[Entry]) -> Diagnosis | None:
    age = _mean(steps, "staleness")
    if age is None or age < OLD:
        return None
    sample, clipped = _mean(steps, "effective_sample_size"), _mean(steps, "clip_fraction")
    signs = [f"an effective sample size of {sample:.1%}"] if sample is not None and sample < 0.5 else []
    signs += [f"{clipped:.1%} of the tokens with an advantage clipped"] if clipped is not None and clipped > 0.5 else []
    if not signs:
        return None
    return Diagnosis(
        "stale rows",
        f"rows are {age:.2g} versions old on average, and it shows: {' and '.join(signs)}",
        "Lower max_staleness, collect more often, or use a decoupled objective with an off-policy correction",
    )


def _no_gradient(steps: Sequence[Entry]) -> Diagnosis | None:
    norm = _mean(steps, "grad_norm")
    if norm is None or norm > GRADIENT_NONE:
        return None
    return Diagnosis(
        "gradient vanished",
        f"the gradient's norm is {norm:.2g}, though there are advantages and nothing is clipped",
        "Look at the advantages' size (`advantage/`), at which parameters train, and at negative_scale where all failed",
    )


_CAUSES: Sequence[Callable[[Sequence[Entry]], Diagnosis | None]] = (
    _rate_zero,
    _no_spread,
    _masked_away,
    _all_clipped,
    _kl_explosion,
    _entropy_collapse,
    _sample_collapse,
    _too_old,
)


def in_words(found: Iterable[Diagnosis]) -> str:
    """One line each."""
    return "\n".join(map(str, found))
