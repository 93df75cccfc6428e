"""What every loss takes and returns."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class LossInputs:
    """The trained tokens of one micro-batch, flat: every tensor has shape [tokens]; log-probs are float32, in nats."""

    logprobs: Tensor  # under the weights being trained; carries the gradient
    proximal: Tensor  # under the weights at the start of the run
    behaviour: Tensor  # under the weights that sampled, as the engine reported them
    advantages: Tensor


@dataclass(frozen=True)
class Loss:
    """`total` is a sum over tokens: the caller divides by the token count of the whole step, over all ranks.

    `metrics` are detached sums over tokens as well, so that they add up over micro-batches and ranks.
    """

    total: Tensor
    metrics: dict[str, Tensor]
