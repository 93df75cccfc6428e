"""Group relative policy optimisation."""

import torch

from tasks.training.losses.base import Loss, LossInputs
from tasks.training.losses.surrogate import clipped_gain, counted, outside
from tasks.training.objectives import Grpo


def grpo(inputs: LossInputs, options: Grpo) -> Loss:
    """L = -mean_i 1/|o_i| sum_t min(r_t * A_t, clip(r_t, 1 - clip_low, 1 + clip_high) * A_t),  r_t = pi / pi_prox

    DeepSeekMath (arXiv 2402.03300). A_t is relative to the group, (R - mean) / std, and comes with the training set. An episode
    counts once, whatever its length; `aggregation = "token"` is DAPO's mean over all tokens of the step instead.

    Negative A_t are first scaled by negative_scale. Most tokens of a failed episode were right: over a few hundred episodes
    the noise of pushing them all down drowns what is learnt from the one that was wrong. Below 1 this is the asymmetric
    baseline of Arnal et al. (2506.20520); 0 learns from successes only, as RAFT does (Xiong et al., 2504.11343).
    """
    ratio = (inputs.logprobs - inputs.proximal).exp()
    advantages = torch.where(inputs.advantages < 0, inputs.advantages * options.negative_scale, inputs.advantages)
    total = -inputs.total(clipped_gain(ratio, advantages, options))
    return Loss(total, counted(inputs, ratio, advantages, outside(ratio, advantages, options)))
