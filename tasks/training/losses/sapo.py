"""Soft adaptive policy optimisation: a smooth gate in place of the clip."""

import torch

from tasks.training.losses.base import Loss, LossInputs, ratio_of
from tasks.training.losses.surrogate import counted
from tasks.training.objectives import Sapo


def sapo(inputs: LossInputs, options: Sapo) -> Loss:
    """L = -mean_i 1/|o_i| sum_t f(r_t) * A_t,  f(r) = 4 / tau * sigmoid(tau * (r - 1)),  r_t = pi / pi_prox

    tau is tau_positive where A_t > 0, else tau_negative. Gao et al. (arXiv 2511.20347). f has slope 1 at r = 1 and
    flattens on both sides, so a token further off counts less and never falls off an edge. Defaults: 1.0 and 1.05, the
    paper's; negative tokens raise many others at once, and fade sooner.
    """
    ratio = ratio_of(inputs.logprobs - inputs.proximal)
    tau = torch.full_like(ratio, options.tau_negative).masked_fill(inputs.advantages > 0, options.tau_positive)
    gate = torch.sigmoid(tau * (ratio - 1)) * 4 / tau
    faded = 4 * torch.sigmoid(tau * (ratio - 1)) * torch.sigmoid(-tau * (ratio - 1)) < 0.5  # of the gradient at ratio 1
    return Loss(-inputs.total(gate * inputs.advantages), counted(inputs, ratio, inputs.advantages, faded))
