"""Keeping close to a reference policy."""

import torch
from torch import Tensor

from tasks.training.losses.base import bounded
from tasks.training.objectives import Estimate


def divergence(logprobs: Tensor, reference: Tensor, estimator: Estimate) -> Tensor:
    """An estimate of KL(pi || pi_ref) at each sampled token, in nats (Schulman, "Approximating KL divergence", 2020).

    With d = log pi - log pi_ref, k1 = d is unbiased and noisy; k2 = d^2 / 2 is biased, and its gradient is on average
    the true KL's; k3 = exp(-d) - 1 + d is unbiased and never negative (GRPO, arXiv 2402.03300). As a term of the loss
    k1 would have an expected gradient of 0, whatever the reference: k1 is taken from the advantage instead (`shaped`),
    as PPO does with its reward. k3's value is right and its gradient on average that of KL(pi_ref || pi); times
    pi / pi_prox (`unbiased`) both are those of KL(pi || pi_ref) (DeepSeek-V3.2, arXiv 2512.02556).
    """
    difference = logprobs - reference
    if estimator == "k1":
        return difference
    return difference.square() / 2 if estimator == "k2" else torch.expm1(bounded(-difference)) + difference


def shaped(advantages: Tensor, proximal: Tensor, reference: Tensor, coefficient: float) -> Tensor:
    """A_t - coefficient * k1 under the proximal policy: a token is paid for what the reference gives it."""
    return advantages - coefficient * divergence(proximal, reference, "k1")
