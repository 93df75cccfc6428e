"""What a token weighs in the loss, and what the sum over a step is divided by. Imports no torch.

Both are counted over the whole training set and the whole step, so neither micro-batches nor ranks can change them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tasks.training.config import TrainConfig
from tasks.training.data.mapped import Row
from tasks.training.objectives import Aggregation


@dataclass(frozen=True)
class Weighing:
    """Per row: the weight of each of its trained tokens, and what the row adds to a step's normaliser.

    `of_penalty` is the weight in a mean over tokens, where `of_token` makes a sum over an episode of them.
    """

    of_token: list[float]
    of_penalty: list[float]
    counts: list[float]

    def normaliser(self, chosen: Iterable[int]) -> float:
        return sum(self.counts[i] for i in chosen)


def weighing(rows: Sequence[Row], config: TrainConfig) -> Weighing:
    """The objective's aggregation over these rows.

    token: sum_t l_t / tokens (DAPO). sequence: the mean over episodes of the mean over an episode's tokens (GRPO). sum:
    the mean over episodes of the sum over an episode's tokens. pair: the sum over pairs / pairs. An episode counts
    once, however many rows it makes: where its rows fall into several steps, each counts by its share of the tokens.
    """
    how = config.objective.aggregation
    names = [_unit(row, how) for row in rows]
    tokens = [len(row.positions) for row in rows]
    if how == "token":
        return Weighing([1.0] * len(rows), [1.0] * len(rows), [float(n) for n in tokens])
    together: Counter[str] = Counter()
    for name, n in zip(names, tokens, strict=True):
        together[name] += n
    inverse = [1 / max(1, together[name]) for name in names]
    shares = [n * share for n, share in zip(tokens, inverse, strict=True)]
    return Weighing(inverse if how == "sequence" else [1.0] * len(rows), inverse, shares)


def _unit(row: Row, how: Aggregation) -> str:
    """What counts once."""
    return row.group if how == "pair" else row.episode or row.name
