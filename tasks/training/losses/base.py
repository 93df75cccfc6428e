"""What every loss takes and returns."""

from dataclasses import dataclass

import torch
from torch import Tensor

LARGEST = 20.0  # nats of a ratio: far outside every clip, and its square is finite in float32


@dataclass(frozen=True)
class LossInputs:
    """The trained tokens of one micro-batch, flat: every tensor has shape [tokens]; log-probs are float32, in nats.

    A loss is a sum of `weights` times what its formula gives a token; the caller divides by the step's normaliser
    (`step/aggregation.py`), over all ranks. What an objective does not need is None.
    """

    logprobs: Tensor  # under the weights being trained; carries the gradient
    proximal: Tensor  # under the weights at the start of the run
    behaviour: Tensor  # under the weights that sampled, as the engine reported them
    advantages: Tensor
    sequences: Tensor  # int64: number of the token's row in the micro-batch; a row's tokens are neighbours, in order
    weights: Tensor  # what the aggregation makes the token count
    importance: Tensor  # the off-policy correction's weight, without gradient; 1 where there is none
    reference: Tensor | None = None  # log-probs under the reference policy
    teacher: Tensor | None = None  # log-probs under the teacher
    values: Tensor | None = None  # of the value head at the position that predicts the token; carries gradient
    old_values: Tensor | None = None  # likewise, at the start of the run
    returns: Tensor | None = None  # what the value head shall predict
    pairs: Tensor | None = None  # int64: number of the token's pair in the micro-batch
    means: Tensor | None = None  # `weights` of an aggregation that gives means over tokens, where `weights` gives sums

    def total(self, losses: Tensor) -> Tensor:
        """The sum over tokens of a policy-gradient loss: each counts by aggregation and correction."""
        return (self.weights * self.importance * losses).sum()

    def per_token(self) -> Tensor:
        """What a token counts in a mean over tokens: of a penalty or bonus, which no objective sums over a sequence."""
        return self.weights if self.means is None else self.means

    def sequence_sum(self, values: Tensor) -> Tensor:
        """[tokens]: at every token the sum over its sequence."""
        return by_sequence(values, self.sequences)

    def sequence_mean(self, values: Tensor) -> Tensor:
        """[tokens]: at every token the mean over its sequence."""
        return self.sequence_sum(values) / self.sequence_sum(torch.ones_like(values))

    def pair_sums(self, values: Tensor) -> Tensor:
        """[pairs]: the sum over each pair's tokens."""
        assert self.pairs is not None, "the objective needs pairs"
        return _sums(values, self.pairs)

    def against_reference(self) -> Tensor:
        assert self.reference is not None, "the objective needs a reference"
        return self.reference

    def against_teacher(self) -> Tensor:
        assert self.teacher is not None, "the objective needs a teacher"
        return self.teacher

    def critic(self) -> tuple[Tensor, Tensor, Tensor]:
        """Values now, values at the start of the run, returns."""
        assert self.values is not None and self.old_values is not None and self.returns is not None, "it needs a critic"
        return self.values, self.old_values, self.returns


@dataclass(frozen=True)
class Loss:
    """`total` is a sum: the caller divides by the normaliser of the whole step, over all ranks.

    `metrics` are detached sums over tokens, so that they add up over micro-batches and ranks.
    """

    total: Tensor
    metrics: dict[str, Tensor]


def bounded(log_ratio: Tensor) -> Tensor:
    """A difference of log-probs, in nats, between -LARGEST and LARGEST: whatever is to be exponentiated. The gradient goes on.

    Unbounded, exp() of a sequence's sum or of one token overflows float32 from 88 nats on; and where a loss then chooses its
    clipped branch, the gradient of the other is 0 times infinity. A plain clamp would take the gradient from a sequence that
    became far too likely, which the loss means to push down.
    """
    return log_ratio.detach().clamp(-LARGEST, LARGEST) + (log_ratio - log_ratio.detach())


def ratio_of(log_ratio: Tensor) -> Tensor:
    """exp(log_ratio), finite."""
    return bounded(log_ratio).exp()


def by_sequence(values: Tensor, sequences: Tensor) -> Tensor:
    """[tokens]: at every token the sum over the tokens with its sequence's number."""
    return _sums(values, sequences)[sequences]


def _sums(values: Tensor, numbers: Tensor) -> Tensor:
    """[numbers]: the sum of the values that bear each number."""
    size = int(numbers.max()) + 1 if len(numbers) else 0
    return values.new_zeros(size).index_add(0, numbers, values)
