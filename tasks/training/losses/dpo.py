"""Direct preference optimisation."""

import torch
import torch.nn.functional as F

from tasks.training.losses.base import Loss, LossInputs
from tasks.training.objectives import Dpo


def dpo(inputs: LossInputs, options: Dpo) -> Loss:
    """L = -mean over pairs of (1 - s) * log sigmoid(beta * m) + s * log sigmoid(-beta * m)

    with m = log pi(y_best) / pi_ref(y_best) - log pi(y_worst) / pi_ref(y_worst). Rafailov et al. (arXiv 2305.18290); s,
    label_smoothing, is the share of pairs that are the wrong way round (cDPO). A pair are a group's best and worst
    episode: the training set's estimator `pairs` gives their tokens the advantages 1 and -1. Defaults: beta 0.1, s 0.
    """
    log_ratio = inputs.logprobs - inputs.against_reference()
    pairs, tokens = inputs.pair_sums(inputs.advantages.sign() * log_ratio), inputs.pair_sums(torch.ones_like(log_ratio))
    margin = options.beta * pairs
    kept = options.label_smoothing
    losses = -(1 - kept) * F.logsigmoid(margin) - kept * F.logsigmoid(-margin)
    with torch.no_grad():
        metrics = {"dpo_margin": (margin * tokens).sum(), "dpo_accuracy": ((margin > 0) * tokens).sum()}
    return Loss(losses[tokens > 0].sum(), metrics)
