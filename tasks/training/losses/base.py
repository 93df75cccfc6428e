"""What every loss takes and returns."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class LossInputs:
    """The trained tokens of one micro-batch, flat: every tensor has shape [tokens]; log-probs are float32, in nats.

    A loss is a sum of `weights` times what its formula gives a token; the caller divides by the step's normaliser
    (`aggregation.py`), over all ranks.
    """

    logprobs: Tensor  # under the weights being trained; carries the gradient
    proximal: Tensor  # under the weights at the start of the run
    behaviour: Tensor  # under the weights that sampled, as the engine reported them
    advantages: Tensor
    sequences: Tensor  # int64: number of the token's row in the micro-batch; a row's tokens are neighbours, in order
    weights: Tensor  # what the aggregation makes the token count
    importance: Tensor  # the off-policy correction's weight, without gradient; 1 where there is none

    def total(self, losses: Tensor) -> Tensor:
        """The sum over tokens of a policy-gradient loss: each counts by aggregation and correction."""
        return (self.weights * self.importance * losses).sum()


@dataclass(frozen=True)
class Loss:
    """`total` is a sum: the caller divides by the normaliser of the whole step, over all ranks.

    `metrics` are detached sums over tokens, so that they add up over micro-batches and ranks.
    """

    total: Tensor
    metrics: dict[str, Tensor]
