"""How far the trainer's log-probs are from the engine's on the same tokens, before any weight has changed."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from tasks.training.config import TrainConfig
from tasks.training.data import Row
from tasks.training.errors import Disagreement

ByRow = dict[int, np.ndarray]  # row number -> log-probs of its trained tokens


@dataclass(frozen=True)
class Agreement:
    """|trainer - engine| in nats over the trained tokens of on-policy rows."""

    mean: float
    p99: float
    max: float
    tokens: int

    def metrics(self) -> dict[str, float]:
        return {f"agreement/{name}": float(value) for name, value in asdict(self).items()}


def policy_version(rows: Sequence[Row], config: TrainConfig) -> int:
    """The version of the input model: as configured, else the newest among the rows."""
    return config.policy_version if config.policy_version is not None else max(row.version for row in rows)


def measure(trainer: ByRow, rows: Sequence[Row], config: TrainConfig) -> Agreement | None:
    """Compares on on-policy rows; None where there are none. Raises Disagreement beyond `agreement_bound`."""
    version = policy_version(rows, config)
    gaps = {i: np.abs(values - rows[i].logprobs) for i, values in trainer.items() if rows[i].version == version >= 0}
    if not gaps:
        return None
    every = np.concatenate(list(gaps.values()))
    found = Agreement(float(every.mean()), float(np.quantile(every, 0.99)), float(every.max()), len(every))
    if config.agreement_bound is not None and not found.mean <= config.agreement_bound:
        worst = sorted(gaps, key=lambda i: -float(gaps[i].mean()))[:3]
        raise Disagreement(
            f"trainer and engine disagree by {found.mean:.3g} nats on average over {found.tokens} on-policy tokens "
            f"(p99 {found.p99:.3g}, max {found.max:.3g}); agreement_bound is {config.agreement_bound:g}. "
            f"Either version {version} is not {config.model}, or temperature, template or precision differ. "
            f"Worst rows: {', '.join(rows[i].name for i in worst)}"
        )
    return found
