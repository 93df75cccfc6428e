"""One micro-batch as tensors: several rows in one sequence, without padding."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tasks.training.data import Row
from tasks.training.packing import MicroBatch


@dataclass(frozen=True)
class Batch:
    """`tokens` positions in all, of which `trained` predict a trained token."""

    rows: MicroBatch
    counts: list[int]  # trained tokens of each row
    documents: list[int]  # length of each row: attention stays inside
    input_ids: Tensor  # [1, tokens]
    position_ids: Tensor  # [1, tokens], from 0 in every row
    positions: Tensor  # [trained], into the packed sequence
    targets: Tensor  # [trained]
    behaviour: Tensor  # [trained]
    advantages: Tensor  # [trained]

    def by_row(self, values: Tensor) -> dict[int, np.ndarray]:
        """Splits a [trained] tensor into one float32 array per row number."""
        parts = np.split(values.detach().float().cpu().numpy(), np.cumsum(self.counts)[:-1]) if self.rows else []
        return dict(zip(self.rows, parts, strict=True))


def batch_of(chosen: MicroBatch, rows: Sequence[Row], device: torch.device) -> Batch:
    """Packs the chosen rows. Without any: one token, nothing trained, so an idle rank keeps in step with others."""
    held = [rows[i] for i in chosen] or [_FILLER]
    starts = np.cumsum([0] + [len(row.ids) for row in held[:-1]])

    def tensor(parts: list[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.concatenate(parts)).to(device)

    return Batch(
        rows=chosen,
        counts=[len(row.positions) for row in held],
        documents=[len(row.ids) for row in held],
        input_ids=tensor([row.ids for row in held])[None],
        position_ids=tensor([np.arange(len(row.ids)) for row in held])[None],
        positions=tensor([row.positions + start for row, start in zip(held, starts, strict=True)]),
        targets=tensor([row.targets for row in held]),
        behaviour=tensor([row.logprobs for row in held]),
        advantages=tensor([row.advantages for row in held]),
    )


def values_of(chosen: MicroBatch, values: dict[int, np.ndarray], device: torch.device) -> Tensor:
    """[trained] tensor from one array per row, in the batch's order."""
    return torch.from_numpy(np.concatenate([np.zeros(0, np.float32), *(values[i] for i in chosen)])).to(device)


_NOTHING = np.zeros(0, dtype=np.int64)
_FILLER = Row("filler", np.zeros(1, np.int64), _NOTHING, np.zeros(0, np.float32), np.zeros(0, np.float32), -1)
