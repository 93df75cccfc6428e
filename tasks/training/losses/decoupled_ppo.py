"""Decoupled PPO: the policy that is kept close is not the one that sampled."""

from tasks.training.losses.base import Loss, LossInputs, ratio_of
from tasks.training.losses.surrogate import clipped_gain, counted, outside
from tasks.training.objectives import DecoupledPpo


def decoupled_ppo(inputs: LossInputs, options: DecoupledPpo) -> Loss:
    """L = -1/sum_i |o_i| sum_i sum_t w_t * min(r_t * A_t, clip(r_t, 1 - clip_low, 1 + clip_high) * A_t)

    with r_t = pi / pi_prox and w_t = pi_prox / pi_behaviour, without gradient. Hilton et al. (arXiv 2110.00641); for
    language models and asynchronous rollouts AReaL (2505.24298). Clipping around the sampler would pull a fresh policy
    back to an old one. pi_prox are the weights at the start of the run, recomputed, or with `proximal = "approximated"`
    interpolated between sampler and policy by weight version (A-3PO, 2512.06547). w_t is the run's `correction`, which
    this objective refuses to go without. Default clip 0.2.
    """
    ratio = ratio_of(inputs.logprobs - inputs.proximal)
    total = -inputs.total(clipped_gain(ratio, inputs.advantages, options))
    return Loss(total, counted(inputs, ratio, inputs.advantages, outside(ratio, inputs.advantages, options)))
