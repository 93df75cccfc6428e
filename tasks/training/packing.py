"""Which rows go into which forward pass of which rank: no padding, balanced, and the same for the same seed."""

from collections.abc import Sequence
from math import ceil

import numpy as np

from tasks.training.config import TrainConfig
from tasks.training.data import Row

Minibatch = list[int]  # row numbers of one optimiser step, over all ranks
MicroBatch = list[int]  # row numbers of one forward pass of one rank; may be empty


def minibatches(rows: Sequence[Row], config: TrainConfig) -> list[Minibatch]:
    """Every optimiser step of the run: each epoch is a fresh permutation drawn from (seed, epoch)."""
    steps: list[Minibatch] = []
    for epoch in range(config.epochs):
        order = np.random.default_rng([config.seed, epoch]).permutation(len(rows))
        sizes = [1 if config.minibatch_unit == "rows" else len(rows[i].ids) for i in order]
        steps += _cut(order.tolist(), sizes, config.minibatch)
    return steps[: config.max_steps]


def _cut(order: list[int], sizes: list[int], size: int) -> list[Minibatch]:
    """Consecutive runs of `order`, each closed once it holds at least `size`; a last one under half is merged."""
    runs: list[Minibatch] = [[]]
    filled = 0
    for item, cost in zip(order, sizes, strict=True):
        if filled >= size:
            runs.append([])
            filled = 0
        runs[-1].append(item)
        filled += cost
    if len(runs) > 1 and filled * 2 < size:
        tail = runs.pop()
        runs[-1] += tail
    return runs


def pack(chosen: Minibatch, rows: Sequence[Row], budget: int, ranks: int) -> list[list[MicroBatch]]:
    """For each rank the same number of micro-batches of at most `budget` tokens (a longer row stands alone).

    Longest row first into the emptiest bin; bins of similar size meet in one pass, because ranks wait for each other.
    """
    lengths = {i: len(rows[i].ids) for i in chosen}
    ordered = sorted(chosen, key=lambda i: (-lengths[i], i))
    passes = max(1, ceil(sum(lengths.values()) / (budget * ranks)))
    while True:
        bins: list[MicroBatch] = [[] for _ in range(passes * ranks)]
        loads = [0] * len(bins)
        for i in ordered:
            emptiest = loads.index(min(loads))
            bins[emptiest].append(i)
            loads[emptiest] += lengths[i]
        if all(load <= budget or len(held) == 1 for load, held in zip(loads, bins, strict=True)):
            break
        passes += 1
    by_size = sorted(range(len(bins)), key=lambda b: -loads[b])
    return [[bins[b] for b in by_size[rank::ranks]] for rank in range(ranks)]
