"""Group sequence policy optimisation."""

from tasks.training.losses.base import Loss, LossInputs, ratio_of
from tasks.training.losses.surrogate import clipped_gain, counted, outside
from tasks.training.objectives import Gspo


def gspo(inputs: LossInputs, options: Gspo) -> Loss:
    """L = -mean_i 1/|o_i| sum_t min(s_t * A_t, clip(s_t, 1 - clip_low, 1 + clip_high) * A_t)

    with s_i = (prod_t pi / pi_prox)^(1/|o_i|) and s_t = sg[s_i] * pi / sg[pi]. Zheng et al. (arXiv 2507.18071), in the
    form GSPO-token of its section 4.3: where all tokens of a sequence have one advantage, its value and gradient are
    GSPO's, and advantages call by call work as well. Defaults: clip 3e-4 below and 4e-4 above, the paper's; a
    length-normalised ratio hardly leaves 1.
    """
    log_ratio = inputs.logprobs - inputs.proximal
    of_sequence = inputs.sequence_mean(log_ratio.detach())
    # The token's difference is 0; added to the log-prob first, a mean of 1e-4 would lose its last digits there.
    ratio = ratio_of(of_sequence + (inputs.logprobs - inputs.logprobs.detach()))
    total = -inputs.total(clipped_gain(ratio, inputs.advantages, options))
    return Loss(total, counted(inputs, ratio, inputs.advantages, outside(ratio, inputs.advantages, options)))
