"""REINFORCE++: PPO's surrogate, no critic, advantages normalised over the whole batch."""

from tasks.training.losses.base import Loss, LossInputs, ratio_of
from tasks.training.losses.surrogate import clipped_gain, counted, outside
from tasks.training.objectives import ReinforcePp


def reinforce_pp(inputs: LossInputs, options: ReinforcePp) -> Loss:
    """L = -1/sum_i |o_i| sum_i sum_t min(r_t * A_t, clip(r_t, 1 - clip_low, 1 + clip_high) * A_t),  r_t = pi / pi_prox

    Hu et al. (arXiv 2501.03262). A = (R' - mean R') / std R' over all episodes of the training set, where R' is the
    reward (estimator `reinforce_pp`) or the reward less the group's mean (`reinforce_pp_baseline`). Its KL term is the
    run's `kl`: k1 in the reward, or k2 in the loss with the baseline. Default clip 0.2 on both sides.
    """
    ratio = ratio_of(inputs.logprobs - inputs.proximal)
    total = -inputs.total(clipped_gain(ratio, inputs.advantages, options))
    return Loss(total, counted(inputs, ratio, inputs.advantages, outside(ratio, inputs.advantages, options)))
