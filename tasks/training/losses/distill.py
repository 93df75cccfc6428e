"""On-policy distillation."""

from tasks.training.losses.base import Loss, LossInputs, ratio_of
from tasks.training.losses.surrogate import counted
from tasks.training.objectives import Distill


def distill(inputs: LossInputs, options: Distill) -> Loss:
    """L = -mean_t r_t * A_t,  A_t = log pi_teacher - log pi_prox at the sampled token,  r_t = pi / pi_prox

    The student learns on what it samples itself (GKD, arXiv 2306.13649); on policy the gradient's expectation is that
    of the reverse KL to the teacher, token by token (MiniLLM, 2306.08543, without its look ahead; "On-policy
    distillation", Thinking Machines, 2025). No reward is used. Default: A_t is limited to +-clip_advantage = 10 nats,
    so that a token the teacher rules out does not rule the step.
    """
    ratio = ratio_of(inputs.logprobs - inputs.proximal)
    gap = (inputs.against_teacher() - inputs.proximal).detach()
    advantages = gap.clamp(-options.clip_advantage, options.clip_advantage)
    metrics = counted(inputs, ratio, advantages, advantages != gap) | {"kl_to_teacher": -gap.sum()}
    return Loss(-inputs.total(ratio * advantages), metrics)
