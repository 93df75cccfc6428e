"""Log-probs of a few sequences before and after training, left beside the weights for the weight-sync proof."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from tasks.training.data.batch import batch_of
from tasks.training.data.mapped import Row
from tasks.training.model import scoring
from tasks.training.probe_set import LIKELY, TEMPERATURE, Heated, Probe, affordable, spread
from tasks.training.ranks import Ranks

Probes = list[tuple[list[int], list[float]]]


def take(model: nn.Module, rows: Sequence[Row], ranks: Ranks, temperature: float = 1.0) -> Probes:
    """Of each probe the token ids and the log-probs of every token but the first.

    Probes are rows of several lengths, and rows one after another up to the longest that can be afforded.
    """
    probes = _chosen(model, rows, ranks)
    found: Probes = []
    with torch.no_grad():
        for i, probe in enumerate(probes):  # one at a time: together their attention could be too large
            batch = batch_of([i], probes, ranks.device)
            scores = batch.by_row(scoring.logprobs(model, batch, temperature)[0])[i]
            found.append((probe.ids.tolist(), scores.tolist()))
    return found


def report(before: Probes | None, model: nn.Module, rows: Sequence[Row], ranks: Ranks) -> list[dict[str, Any]]:
    """The probe set under the weights of now, as `probe_set.Probe` has it. `before`: what `take` gave before training."""
    after, heated = take(model, rows, ranks), take(model, rows, ranks, TEMPERATURE)
    earlier = {tuple(ids): logprobs for ids, logprobs in before or []}
    return [
        Probe(
            token_ids=ids,
            logprobs=logprobs,
            heated=_heated(ids, hot),
            previous_logprobs=earlier.get(tuple(ids)),
        ).model_dump()
        for (ids, logprobs), (_, hot) in zip(after, heated, strict=True)
    ]


def _heated(ids: list[int], logprobs: list[float]) -> list[Heated]:
    likely = [place for place, value in enumerate(logprobs) if value > math.log(LIKELY)]
    return [Heated(place=place, token=ids[place + 1], logprob=logprobs[place]) for place in spread(likely)]


def _chosen(model: Any, rows: Sequence[Row], ranks: Ranks) -> list[Row]:
    parameters = sum(one.numel() for one in model.parameters())
    context = getattr(model.config, "max_position_embeddings", None) or 2**20
    limit = affordable(parameters, context, accelerated=ranks.device.type != "cpu")
    lengths = [len(row.ids) for row in rows]
    ranked = sorted(range(len(rows)), key=lambda i: (lengths[i], i))  # numbers: the rows themselves stay in their file
    last = len(ranked) - 1
    picked = [rows[ranked[at]].ids for at in sorted({0, last // 3, 2 * last // 3, last})]
    enough, tokens = list[int](), 0
    while tokens < limit and len(enough) < len(ranked):
        enough.append(ranked[last - len(enough)])
        tokens += lengths[enough[-1]]
    picked.append(np.resize(np.concatenate([rows[i].ids for i in reversed(enough)]), limit))
    return [_whole(f"probe-{n}", ids[:limit]) for n, ids in enumerate(picked)]


def _whole(name: str, ids: np.ndarray) -> Row:
    positions = np.arange(len(ids) - 1)
    return Row(name, ids, positions, np.zeros(len(positions), np.float32), np.zeros(len(positions), np.float32), -1)
