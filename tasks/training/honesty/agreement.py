"""How far the trainer's log-probs are from the engine's on the same tokens, before any weight has changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tasks.training.config import TrainConfig
from tasks.training.data.mapped import ByRow, Row
from tasks.training.errors import Disagreement

SAMPLE = 32  # rows: a fraction of a step's work, and thousands of tokens
# An error that grows along the sequence (positions, window, cache) looks otherwise than one that is everywhere alike.
PLACES = (0, 16, 64, 256, 1024, 4096, 16384)


@dataclass(frozen=True)
class Agreement:
    """|trainer - engine| in nats over the trained tokens of on-policy rows."""

    mean: float
    p99: float
    max: float
    tokens: int
    by_position: Mapping[str, float] = field(default_factory=dict)  # mean by place in the row: "16-63"

    def metrics(self) -> dict[str, float]:
        """Under their MLflow names."""
        own = {name: float(getattr(self, name)) for name in ("mean", "p99", "max", "tokens")}
        own |= {f"position/{place}": gap for place, gap in self.by_position.items()}
        return {f"agreement/{name}": value for name, value in own.items()}


def policy_version(rows: Sequence[Row], config: TrainConfig) -> int:
    """The version of the input model: as configured, else the newest among the rows."""
    return config.policy_version if config.policy_version is not None else max(row.version for row in rows)


def sample(rows: Sequence[Row], config: TrainConfig) -> list[int]:
    """Numbers of at most SAMPLE on-policy rows, spread over all of them: what a run looks at that looks up no others."""
    version = policy_version(rows, config)
    fresh = [i for i, row in enumerate(rows) if row.version == version >= 0]
    return [fresh[at] for at in np.linspace(0, len(fresh) - 1, min(SAMPLE, len(fresh))).astype(int)]


def measure(trainer: ByRow, rows: Sequence[Row], config: TrainConfig) -> Agreement | None:
    """Compares on on-policy rows; None where there are none. Raises Disagreement beyond `agreement_bound`."""
    version = policy_version(rows, config)
    held = {i: row for i in trainer if (row := rows[i]).version == version >= 0}
    gaps = {i: np.abs(trainer[i] - row.logprobs) for i, row in held.items()}
    if not gaps:
        return None
    every = np.concatenate(list(gaps.values()))
    places = np.concatenate([row.positions + 1 for row in held.values()])
    found = Agreement(
        mean=float(every.mean()),
        p99=float(np.quantile(every, 0.99)),
        max=float(every.max()),
        tokens=len(every),
        by_position=_by_position(every, places),
    )
    if config.agreement_bound is not None and not found.mean <= config.agreement_bound:
        worst = sorted(gaps, key=lambda i: -float(gaps[i].mean()))[:3]
        raise Disagreement(
            f"trainer and engine disagree by {found.mean:.3g} nats on average over {found.tokens} on-policy tokens "
            f"(p99 {found.p99:.3g}, max {found.max:.3g}; by position "
            f"{', '.join(f'{place} {gap:.3g}' for place, gap in found.by_position.items())}); "
            f"agreement_bound is {config.agreement_bound:g}. "
            f"Either version {version} is not {config.model}, or temperature, template or precision differ. "
            f"Worst rows: {', '.join(held[i].name for i in worst)}"
        )
    return found


def _by_position(gaps: np.ndarray, places: np.ndarray) -> dict[str, float]:
    bins = np.digitize(places, PLACES) - 1
    return {
        f"{PLACES[b]}-{PLACES[b + 1] - 1}" if b + 1 < len(PLACES) else f"{PLACES[b]}-": float(gaps[bins == b].mean())
        for b in np.unique(bins)
    }
