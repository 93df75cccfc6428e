"""REINFORCE with a leave-one-out baseline."""

from tasks.training.losses.base import Loss, LossInputs, ratio_of
from tasks.training.losses.surrogate import clipped_gain, counted, outside
from tasks.training.objectives import Rloo


def rloo(inputs: LossInputs, options: Rloo) -> Loss:
    """L = -mean_i min(rho_i * A_i, clip(rho_i, 1 - clip_low, 1 + clip_high) * A_i),  rho_i = prod_t pi / pi_prox

    Ahmadian et al., "Back to basics" (arXiv 2402.14740); A_i = R_i - mean of the group's other rewards (the estimator
    `rloo`). The whole sequence is one action: on policy the gradient is -A_i * sum_t grad log pi, REINFORCE's. The
    ratio, clipped as in TRL, matters from the second step on the same data. Default clip 0.2 on both sides.
    """
    ratio = ratio_of(inputs.sequence_sum(inputs.logprobs - inputs.proximal))
    share = inputs.sequence_sum(
        inputs.weights.new_ones(inputs.weights.shape)
    ).reciprocal()  # a sequence's tokens add up to it
    total = -inputs.total(share * clipped_gain(ratio, inputs.advantages, options))
    return Loss(total, counted(inputs, ratio, inputs.advantages, outside(ratio, inputs.advantages, options)))
