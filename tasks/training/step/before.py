"""What is known of every row before the first step and then stays: log-probs of the other policies, values, advantages."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import nn

from tasks.training.config import TrainConfig
from tasks.training.data.mapped import ByRow, Row
from tasks.training.model import policy
from tasks.training.objectives import M2po, Ppo, Sft
from tasks.training.ranks import Ranks
from tasks.training.step import gae
from tasks.training.step.passes import look


def look_around(
    model: nn.Module, rows: Sequence[Row], steps: int, config: TrainConfig, ranks: Ranks
) -> dict[str, ByRow]:
    """By name, of every row's trained tokens: `proximal`, `reference`, `teacher`, `values`, `advantages`, `returns`.

    Only what the objective needs, on every rank. One model is in memory beside the trained one, and gone before the first step.
    """
    found: dict[str, ByRow] = {}
    own = _own_policy(config, steps)
    if own:
        seen = look(model, rows, config, ranks)
        found |= {name: seen[was] for name, was in own.items()}
    for name, folder in (("reference", config.reference), ("teacher", config.teacher)):
        if folder and name not in found:
            found[name] = _of_another(folder, rows, config, ranks)
    if isinstance(config.objective, Ppo):
        rewards = _rewards(rows, found, config)
        found["advantages"], found["returns"] = gae.estimate(found["values"], rewards, rows, config.objective)
    return found


def _own_policy(config: TrainConfig, steps: int) -> dict[str, str]:
    """What is to be looked up under the starting weights, and as what.

    With a single step the proximal log-probs are the current ones, so looking first would change nothing.
    """
    needs = config.objective.needs
    wanted = {}
    several = steps > 1 or isinstance(config.correction, M2po)
    if "behaviour" in needs and ((config.proximal == "recomputed" and several) or _shapes_reward(config)):
        wanted["proximal"] = "logprobs"
    if "critic" in needs:
        wanted["values"] = "values"
    if (config.reference or config.model).resolve() == config.model.resolve() and (config.kl or "reference" in needs):
        wanted["reference"] = "logprobs"
    return wanted


def _shapes_reward(config: TrainConfig) -> bool:
    return config.kl is not None and config.kl.estimator == "k1" and "critic" in config.objective.needs


def _of_another(folder: Path, rows: Sequence[Row], config: TrainConfig, ranks: Ranks) -> ByRow:
    # Nothing is learnt there: any objective loads the plain model, without adapters.
    other = policy.load(config.model_copy(update={"model": folder, "objective": Sft(), "lora": None}), ranks)
    return look(other, rows, config, ranks)["logprobs"]


def _rewards(rows: Sequence[Row], found: dict[str, ByRow], config: TrainConfig) -> dict[int, np.ndarray]:
    """Of each trained token: the row's on its last, less coefficient * k1 to the reference on all."""
    rewards = {}
    for i, row in enumerate(rows):
        rewards[i] = np.zeros(len(row.positions))
        rewards[i][-1] = row.advantages[-1]
        if _shapes_reward(config):
            assert config.kl is not None
            rewards[i] -= config.kl.coefficient * (found["proximal"][i] - found["reference"][i])
    return rewards
