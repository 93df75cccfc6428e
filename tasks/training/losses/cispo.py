"""Clipped importance-sampling weights, all tokens keep their gradient."""

from tasks.training.losses.base import Loss, LossInputs, ratio_of
from tasks.training.losses.surrogate import counted
from tasks.training.objectives import Cispo


def cispo(inputs: LossInputs, options: Cispo) -> Loss:
    """L = -1/sum_i |o_i| sum_i sum_t sg[clip(r_t, ratio_low, ratio_high)] * A_t * log pi,  r_t = pi / pi_prox

    MiniMax-M1 (arXiv 2506.13585). The weight is clipped and not the update, so rare tokens that turn an argument around
    are not lost after the first step. Defaults: no lower bound, as in the paper; 5 above, in the middle of what ScaleRL
    (2510.13786) found to make no difference, 4 to 8.
    """
    ratio = ratio_of((inputs.logprobs - inputs.proximal).detach())
    weight = ratio.clamp(options.ratio_low, options.ratio_high)
    total = -inputs.total(weight * inputs.advantages * inputs.logprobs)
    return Loss(total, counted(inputs, ratio, inputs.advantages, weight != ratio))
