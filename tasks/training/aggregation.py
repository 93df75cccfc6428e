"""What a token weighs in the loss, and what the sum over a step is divided by. Imports no torch.

Both are counted over the whole training set and the whole step, so neither micro-batches nor ranks can change them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tasks.training.config import TrainConfig
from tasks.training.data import Row


@dataclass(frozen=True)
class Weighing:
    """Per row: the weight of each of its trained tokens, and what the row adds to a step's normaliser."""

    of_token: list[float]
    counts: list[float]

    def normaliser(self, chosen: Iterable[int]) -> float:
        return sum(self.counts[i] for i in chosen)


def weighing(rows: Sequence[Row], config: TrainConfig) -> Weighing:
    """The objective's aggregation over these rows.

    token: sum_t l_t / tokens (DAPO). sequence: the mean over episodes of the mean over an episode's tokens (GRPO). An episode
    counts once, however many rows it makes: where its rows fall into several steps, each counts by its share of the tokens.
    """
    tokens = [len(row.positions) for row in rows]
    if config.objective.aggregation == "token":
        return Weighing([1.0] * len(rows), [float(n) for n in tokens])
    of_episode: Counter[str] = Counter()
    for row, n in zip(rows, tokens, strict=True):
        of_episode[_episode(row)] += n
    inverse = [1 / max(1, of_episode[_episode(row)]) for row in rows]
    return Weighing(inverse, [n * share for n, share in zip(tokens, inverse, strict=True)])


def _episode(row: Row) -> str:
    return row.name.rpartition("#")[0] or row.name
