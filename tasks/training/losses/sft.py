"""Supervised fine-tuning."""

from tasks.training.losses.base import Loss, LossInputs


def sft(inputs: LossInputs) -> Loss:
    """Negative log-likelihood of the demonstrated tokens: L = -sum_t log pi(a_t | s_t)."""
    return Loss(total=-inputs.logprobs.sum(), metrics={})
