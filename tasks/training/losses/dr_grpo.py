"""GRPO done right: no length bias, no difficulty bias."""

from tasks.training.losses.base import Loss, LossInputs, ratio_of
from tasks.training.losses.surrogate import clipped_gain, counted, outside
from tasks.training.objectives import DrGrpo


def dr_grpo(inputs: LossInputs, options: DrGrpo) -> Loss:
    """L = -mean_i 1/budget sum_t min(r_t * A_t, clip(r_t, 1 - clip_low, 1 + clip_high) * A_t),  r_t = pi / pi_prox

    Liu et al., "Understanding R1-Zero-like training" (arXiv 2503.20783). GRPO with two divisions taken out: A_t = R -
    mean, not over the group's deviation (the training set's estimator `dr_grpo`), and an episode's tokens are divided
    by a constant, not by their number. Defaults: clip 0.2 on both sides as in PPO; budget 512, the tokens an episode
    may sample.
    """
    ratio = ratio_of(inputs.logprobs - inputs.proximal)
    total = -inputs.total(clipped_gain(ratio, inputs.advantages, options)) / options.budget
    return Loss(total, counted(inputs, ratio, inputs.advantages, outside(ratio, inputs.advantages, options)))
