"""Decoupled clip and dynamic sampling policy optimisation."""

from tasks.training.losses.base import Loss, LossInputs, ratio_of
from tasks.training.losses.surrogate import clipped_gain, counted, outside
from tasks.training.objectives import Dapo


def dapo(inputs: LossInputs, options: Dapo) -> Loss:
    """L = -1/sum_i |o_i| sum_i sum_t min(r_t * A_t, clip(r_t, 1 - clip_low, 1 + clip_high) * A_t),  r_t = pi / pi_prox

    Yu et al. (arXiv 2503.14476). Against GRPO: clip-higher (0.2 below, 0.28 above, so that rare tokens can gain), a
    mean over all tokens of the step. Its other two parts belong to the data: dynamic sampling is the filter `grpo`,
    which leaves out groups whose outcomes are all the same; overlong shaping is the selection's `overlong`, which takes
    from the reward before the advantage is made.
    """
    ratio = ratio_of(inputs.logprobs - inputs.proximal)
    total = -inputs.total(clipped_gain(ratio, inputs.advantages, options))
    return Loss(total, counted(inputs, ratio, inputs.advantages, outside(ratio, inputs.advantages, options)))
