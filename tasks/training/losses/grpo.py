"""Group relative policy optimisation."""

from tasks.training.losses.base import Loss, LossInputs, ratio_of
from tasks.training.losses.surrogate import clipped_gain, counted, outside
from tasks.training.objectives import Grpo


def grpo(inputs: LossInputs, options: Grpo) -> Loss:
    """L = -mean_i 1/|o_i| sum_t min(r_t * A_t, clip(r_t, 1 - clip_low, 1 + clip_high) * A_t),  r_t = pi / pi_prox

    DeepSeekMath (arXiv 2402.03300). A_t is relative to the group, (R - mean) / std, and comes with the training set. An
    episode counts once, whatever its length; `aggregation = "token"` is DAPO's mean over all tokens of the step
    instead.
    """
    ratio = ratio_of(inputs.logprobs - inputs.proximal)
    total = -inputs.total(clipped_gain(ratio, inputs.advantages, options))
    return Loss(total, counted(inputs, ratio, inputs.advantages, outside(ratio, inputs.advantages, options)))
