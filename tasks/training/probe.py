"""Log-probs of a few sequences before and after training, left beside the weights for the weight-sync proof."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from tasks.training.data.batch import batch_of
from tasks.training.data.mapped import ByRow, Row
from tasks.training.model import scoring
from tasks.training.ranks import Ranks

PROBES = 4
LONGEST = 256

Probes = list[tuple[list[int], list[float]]]


def take(model: nn.Module, rows: Sequence[Row], ranks: Ranks) -> Probes:
    """The start of the four rows nearest to 256 tokens: log-probs of every token but the first, at temperature 1."""
    chosen = sorted(rows, key=lambda row: (abs(len(row.ids) - LONGEST), row.name))[:PROBES]
    probes = [_whole(row) for row in chosen]
    with torch.no_grad():
        batch = batch_of(list(range(len(probes))), probes, ranks.device)
        found: ByRow = batch.by_row(scoring.logprobs(model, batch)[0])
    return [(row.ids.tolist(), found[i].tolist()) for i, row in enumerate(probes)]


def compare(before: Probes, after: Probes) -> list[dict[str, Any]]:
    """Per sequence `token_ids`, and `logprobs` after, `previous_logprobs` before, of token_ids[1:], in nats."""
    return [
        {"token_ids": ids, "logprobs": new, "previous_logprobs": old}
        for (ids, old), (_, new) in zip(before, after, strict=True)
    ]


def _whole(row: Row) -> Row:
    ids = row.ids[:LONGEST]
    positions = np.arange(len(ids) - 1)
    return Row(row.name, ids, positions, np.zeros(len(positions), np.float32), np.zeros(len(positions), np.float32), -1)
