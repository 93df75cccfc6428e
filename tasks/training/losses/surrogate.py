"""What clipped policy-gradient losses share: the pessimistic surrogate, and what is counted of it."""

import torch
from torch import Tensor

from tasks.training.losses.base import LossInputs, bounded
from tasks.training.objectives import Clipped


def clipped_gain(ratio: Tensor, advantages: Tensor, options: Clipped) -> Tensor:
    """min(r_t * A_t, clip(r_t, 1 - clip_low, 1 + clip_high) * A_t), as in PPO (arXiv 1707.06347)."""
    return torch.minimum(ratio * advantages, ratio.clamp(1 - options.clip_low, 1 + options.clip_high) * advantages)


def counted(inputs: LossInputs, ratio: Tensor, advantages: Tensor, clipped: Tensor) -> dict[str, Tensor]:
    """Metrics of a step, sums over tokens. `clipped` [tokens]: where a token's gradient is lost, if its advantage gives it one."""
    with torch.no_grad():
        log_ratio = inputs.logprobs - inputs.proximal
        positive, negative = (advantages > 0).float(), (advantages < 0).float()
        return {
            "ratio": ratio.sum(),
            "clip_fraction": (clipped & (advantages != 0)).sum().to(ratio.dtype),
            # Schulman's k3 estimator, never negative
            "kl_to_proximal": (torch.expm1(bounded(log_ratio)) - log_ratio).sum(),
            "positive_tokens": positive.sum(),
            "positive_advantage": (advantages * positive).sum(),
            "negative_tokens": negative.sum(),
            "negative_advantage": (advantages * negative).sum(),
        }


def outside(ratio: Tensor, advantages: Tensor, options: Clipped) -> Tensor:
    """Where the clipped surrogate is the smaller one: the token would move further away, and has no gradient."""
    return ((ratio > 1 + options.clip_high) & (advantages > 0)) | ((ratio < 1 - options.clip_low) & (advantages < 0))
