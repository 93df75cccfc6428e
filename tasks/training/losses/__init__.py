"""Objectives, one file each: `loss(inputs, options) -> Loss`, with the formula and the paper in the docstring."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tasks.training.config import TrainConfig
from tasks.training.losses import kl
from tasks.training.losses.base import Loss, LossInputs, ratio_of
from tasks.training.losses.cispo import cispo
from tasks.training.losses.dapo import dapo
from tasks.training.losses.decoupled_ppo import decoupled_ppo
from tasks.training.losses.distill import distill
from tasks.training.losses.dpo import dpo
from tasks.training.losses.dr_grpo import dr_grpo
from tasks.training.losses.grpo import grpo
from tasks.training.losses.gspo import gspo
from tasks.training.losses.ppo import ppo
from tasks.training.losses.reinforce_pp import reinforce_pp
from tasks.training.losses.rloo import rloo
from tasks.training.losses.sapo import sapo
from tasks.training.losses.sft import sft
from tasks.training.objectives import PolicyGradient

LOSSES: dict[str, Callable[[LossInputs, Any], Loss]] = {
    loss.__name__: loss
    for loss in (sft, dpo, grpo, dr_grpo, dapo, rloo, reinforce_pp, gspo, cispo, sapo, ppo, decoupled_ppo, distill)
}


def compute(inputs: LossInputs, entropy: Tensor, config: TrainConfig) -> Loss:
    """The objective's loss, and what the run adds to any: a distance to a reference, a bonus for entropy [tokens]."""
    options = config.objective
    if isinstance(options, PolicyGradient):
        inputs = replace(inputs, advantages=_advantages(inputs, options, config))
    loss = LOSSES[options.name](inputs, options)
    total, metrics = loss.total, dict(loss.metrics)
    if config.kl:
        distance = kl.divergence(inputs.logprobs, inputs.against_reference(), config.kl.estimator)
        if config.kl.unbiased:
            distance = ratio_of(inputs.logprobs - inputs.proximal) * distance
        metrics["kl_to_reference"] = distance.detach().sum()
        if config.kl.estimator != "k1":
            total = total + config.kl.coefficient * (inputs.per_token() * distance).sum()
    if config.entropy_bonus:
        total = total - config.entropy_bonus * (inputs.per_token() * entropy).sum()
    return Loss(total, metrics)


def _advantages(inputs: LossInputs, options: PolicyGradient, config: TrainConfig) -> Tensor:
    """As trained on: less k1 to the reference (of PPO it is in the reward, `step/gae.py`), negative ones scaled.

    Most tokens of a failed episode were right: over a few hundred episodes the noise of pushing them all down drowns
    what is learnt from the one that was wrong. negative_scale below 1 is the asymmetric baseline of Arnal et al. (arXiv
    2506.20520); 0 learns from successes only, as RAFT does (Xiong et al., 2504.11343).
    """
    advantages = inputs.advantages
    if config.kl and config.kl.estimator == "k1" and "critic" not in options.needs:
        advantages = kl.shaped(advantages, inputs.proximal, inputs.against_reference(), config.kl.coefficient)
    return torch.where(advantages < 0, advantages * options.negative_scale, advantages)
