"""Off-policy correction: what a token weighs for having been sampled by another policy than the proximal one."""

import torch
from torch import Tensor

from tasks.training.objectives import Truncate


def correct(proximal: Tensor, behaviour: Tensor, options: Truncate | None) -> tuple[Tensor, dict[str, Tensor]]:
    """Weights [tokens] without gradient, and their metrics as sums over tokens.

    truncate: w_t = min(pi_proximal / pi_behaviour, high). IMPALA (arXiv 1802.01561); for a sampler that differs from the
    trainer, "Your efficient RL framework secretly brings you off-policy RL training" (Yao et al., 2025).
    """
    with torch.no_grad():
        raw = (proximal - behaviour).exp()
        weight = torch.ones_like(raw) if options is None else raw.clamp(max=options.high)
        metrics = {
            "importance_weight": weight.sum(),
            "importance_weight_squared": weight.square().sum(),
            "importance_truncated": (weight < raw).float().sum() if options else torch.zeros_like(raw).sum(),
        }
    return weight, metrics
