"""Group relative policy optimisation, decoupled, with truncated importance weights."""

import torch

from tasks.training.config import GrpoOptions
from tasks.training.losses.base import Loss, LossInputs


def grpo(inputs: LossInputs, options: GrpoOptions) -> Loss:
    """L = -sum_t w_t * min(r_t * A_t, clip(r_t, 1 - clip_low, 1 + clip_high) * A_t)

    with r_t = pi / pi_prox and w_t = min(pi_prox / pi_behaviour, importance_bound), which carries no gradient.
    Negative A_t are first scaled by negative_scale. Most tokens of a failed episode were right: over a few hundred episodes
    the noise of pushing them all down drowns what is learnt from the one that was wrong. Below 1 this is the asymmetric
    baseline of Arnal et al. (2506.20520); 0 learns from successes only, as RAFT does (Xiong et al., 2504.11343).

    GRPO and its group-relative advantage A_t: DeepSeekMath (arXiv 2402.03300). Two clip bounds and normalisation by the
    global token count: DAPO (2503.14476). Proximal apart from behaviour policy: Hilton et al. (2110.00641), as in
    AReaL (2505.24298). Truncated importance weight: IMPALA (1802.01561); for a sampler that differs from the trainer,
    "Your efficient RL framework secretly brings you off-policy RL training" (Yao et al., 2025).
    """
    log_ratio = inputs.logprobs - inputs.proximal
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - options.clip_low, 1 + options.clip_high)
    advantages = torch.where(inputs.advantages < 0, inputs.advantages * options.negative_scale, inputs.advantages)
    gain = torch.minimum(ratio * advantages, clipped * advantages)
    raw_weight = (inputs.proximal - inputs.behaviour).exp()
    weight = raw_weight.clamp(max=options.importance_bound).detach()
    with torch.no_grad():
        binding = (clipped * advantages < ratio * advantages).float()
        positive = (advantages > 0).float()
        metrics = {
            "ratio": ratio.sum(),
            "clip_fraction": binding.sum(),
            "kl_to_proximal": (ratio - 1 - log_ratio).sum(),  # Schulman's k3 estimator, never negative
            "importance_weight": weight.sum(),
            "importance_weight_squared": weight.square().sum(),
            "importance_truncated": (raw_weight > options.importance_bound).float().sum(),
            "positive_tokens": positive.sum(),
            "positive_advantage": (advantages * positive).sum(),
            "negative_tokens": (advantages < 0).float().sum(),
            "negative_advantage": advantages.clamp(max=0).sum(),
        }
    return Loss(total=-(weight * gain).sum(), metrics={name: value.detach() for name, value in metrics.items()})
