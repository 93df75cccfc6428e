"""Proximal policy optimisation with a value head."""

import torch

from tasks.training.losses.base import Loss, LossInputs, ratio_of
from tasks.training.losses.surrogate import clipped_gain, counted, outside
from tasks.training.objectives import Ppo


def ppo(inputs: LossInputs, options: Ppo) -> Loss:
    """L = -mean_t min(r_t * A_t, clip(r_t, 1 - clip_low, 1 + clip_high) * A_t) + value_coefficient * L_value

    L_value = mean_t 1/2 max((V_t - R_t)^2, (clip(V_t, V_old - value_clip, V_old + value_clip) - R_t)^2)

    Schulman et al. (arXiv 1707.06347), r_t = pi / pi_prox; A_t and R_t = A_t + V_old by generalised advantage
    estimation (1506.02438, `step/gae.py`) from the values at the start of the run. The clipped value loss is that of
    OpenAI's baselines, as in InstructGPT (2203.02155). Defaults: clip 0.2, value_clip 0.2, value_coefficient 0.1.
    """
    values, old, returns = inputs.critic()
    ratio = ratio_of(inputs.logprobs - inputs.proximal)
    gain = inputs.total(clipped_gain(ratio, inputs.advantages, options))
    near = torch.clamp(values, old - options.value_clip, old + options.value_clip)
    plain, clipped = (values - returns).square(), (near - returns).square()
    error = 0.5 * torch.maximum(plain, clipped)
    metrics = counted(inputs, ratio, inputs.advantages, outside(ratio, inputs.advantages, options)) | {
        "value_loss": error.detach().sum(),
        "value_clip_fraction": (clipped > plain).float().sum(),
        "value": values.detach().sum(),
        "return": returns.sum(),
    }
    return Loss(options.value_coefficient * (inputs.weights * error).sum() - gain, metrics)
