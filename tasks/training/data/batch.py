"""One micro-batch as tensors: several rows in one sequence, without padding, what they share once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tasks.training.data.mapped import Row
from tasks.training.data.packing import MicroBatch
from tasks.training.data.tree import Tree, tree_of


@dataclass(frozen=True)
class Batch:
    """`tokens` positions in all, and `trained` terms of the loss: a token that several rows train counts once for each."""

    rows: MicroBatch
    counts: list[int]  # trained tokens of each row
    tree: Tree
    input_ids: Tensor  # [1, tokens]
    position_ids: Tensor  # [1, tokens], from 0 in every row
    scored: Tensor  # [scored], ascending: where the packed sequence predicts a trained token
    positions: Tensor  # [trained], into `scored`
    targets: Tensor  # [trained]
    sequences: Tensor  # [trained], number of the row in the micro-batch
    behaviour: Tensor  # [trained]
    advantages: Tensor  # [trained]

    @property
    def tokens(self) -> int:
        """Of all rows, shared ones counted once for each row; 0 of an idle rank's filler."""
        return sum(len(places) for places in self.tree.places) if self.rows else 0

    @property
    def unique_tokens(self) -> int:
        """That are computed."""
        return len(self.tree.ids) if self.rows else 0

    def by_row(self, values: Tensor) -> dict[int, np.ndarray]:
        """Splits a [trained] tensor into one float32 array per row number."""
        parts = np.split(values.detach().float().cpu().numpy(), np.cumsum(self.counts)[:-1]) if self.rows else []
        return dict(zip(self.rows, parts, strict=True))


def batch_of(chosen: MicroBatch, rows: Sequence[Row], device: torch.device, shared: int | None = None) -> Batch:
    """Packs the chosen rows; those whose first `shared` tokens and more are the same share them, and None shares nothing.

    Without any row: one token, nothing trained, so an idle rank keeps in step with others.
    """
    held = [rows[i] for i in chosen] or [_FILLER]
    tree = tree_of([row.ids for row in held], shared)
    counts = [len(row.positions) for row in held]
    predicting = np.concatenate([places[row.positions] for places, row in zip(tree.places, held, strict=True)])
    scored, positions = np.unique(predicting, return_inverse=True)

    def tensor(array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    return Batch(
        rows=chosen,
        counts=counts,
        tree=tree,
        input_ids=tensor(tree.ids)[None],
        position_ids=tensor(tree.depths)[None],
        scored=tensor(scored),
        positions=tensor(positions),
        targets=tensor(np.concatenate([row.targets for row in held])),
        sequences=tensor(np.repeat(np.arange(len(held)), counts)),
        behaviour=tensor(np.concatenate([row.logprobs for row in held])),
        advantages=tensor(np.concatenate([row.advantages for row in held])),
    )


def values_of(chosen: MicroBatch, values: dict[int, np.ndarray], device: torch.device) -> Tensor:
    """[trained] tensor from one array per row, in the batch's order."""
    return torch.from_numpy(np.concatenate([np.zeros(0, np.float32), *(values[i] for i in chosen)])).to(device)


_NOTHING = np.zeros(0, dtype=np.int64)
_FILLER = Row("filler", np.zeros(1, np.int64), _NOTHING, np.zeros(0, np.float32), np.zeros(0, np.float32), -1)
