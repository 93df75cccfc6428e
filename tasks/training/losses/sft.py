"""Supervised fine-tuning."""

from tasks.training.losses.base import Loss, LossInputs
from tasks.training.objectives import Sft


def sft(inputs: LossInputs, _: Sft) -> Loss:
    """Negative log-likelihood of the demonstrated tokens: L = -sum_t log pi(a_t | s_t)."""
    return Loss(total=-(inputs.weights * inputs.logprobs).sum(), metrics={})
