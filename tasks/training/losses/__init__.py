"""Objectives, one file each: `loss(inputs, options) -> Loss`, with the formula and the paper in the docstring."""

from collections.abc import Callable
from typing import Any

from tasks.training.losses.base import Loss, LossInputs
from tasks.training.losses.grpo import grpo
from tasks.training.losses.sft import sft
from tasks.training.objectives import Objective

_LOSSES: dict[str, Callable[[LossInputs, Any], Loss]] = {"sft": sft, "grpo": grpo}


def compute(inputs: LossInputs, objective: Objective) -> Loss:
    """The loss of the objective's name."""
    return _LOSSES[objective.name](inputs, objective)
