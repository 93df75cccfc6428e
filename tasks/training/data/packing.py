"""Which rows go into which forward pass of which rank: no padding, balanced, and the same for the same seed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from math import ceil

import numpy as np

from tasks.training.config import TrainConfig
from tasks.training.data.mapped import Row
from tasks.training.data.tree import overlaps

Minibatch = list[int]  # row numbers of one optimiser step, over all ranks
MicroBatch = list[int]  # row numbers of one forward pass of one rank; may be empty

BLOCK = 256  # rows
CUTS = (1.3, 1.2, 1.1, 1.05, 1.0, 0.75, 0.5, 0.33, 0.25)  # tried sizes of a part, as shares of a rank's tokens


def minibatches(rows: Sequence[Row], config: TrainConfig) -> list[Minibatch]:
    """Every optimiser step of the run: each epoch is a fresh permutation drawn from (seed, epoch).

    Rows of a group follow the first of them and are not parted where they fit into a step: they share a prompt, and an
    advantage is relative to the group.
    """
    sizes = [1 if config.minibatch_unit == "rows" else len(row.ids) for row in rows]
    groups = [row.group or row.name for row in rows]
    paired = "pairs" in config.objective.needs
    steps: list[Minibatch] = []
    for epoch in range(config.epochs):
        order = np.random.default_rng([config.seed, epoch]).permutation(len(rows)).tolist()
        steps += _grouped(order, groups, sizes, config.minibatch, paired=paired)
    return steps[: config.max_steps]


def blocks(chosen: Iterable[int], rows: Sequence[Row]) -> list[list[int]]:
    """The chosen rows, some hundred at a time and by group, to be packed one block after another.

    What packing costs grows faster than the number of rows, and it holds their tokens; a group beyond a block is parted.
    """
    numbers = list(chosen)
    names = [row.group or row.name for row in (rows[i] for i in numbers)]
    parts = _grouped(range(len(numbers)), names, [1] * len(numbers), BLOCK)
    return [[numbers[at] for at in part] for part in parts]


def _grouped(
    order: Iterable[int], groups: Sequence[str], sizes: Sequence[int], size: int, *, paired: bool = False
) -> list[list[int]]:
    """Numbers in runs of about `size`: a group follows its first, and is parted only where it is larger and not `paired`."""
    together: dict[str, list[int]] = {}
    for i in order:
        together.setdefault(groups[i], []).append(i)
    units: list[list[int]] = []
    for group in together.values():
        whole = paired or sum(sizes[i] for i in group) <= size
        units += [group] if whole else [[i] for i in group]
    return _cut(units, [sum(sizes[i] for i in unit) for unit in units], size)


def _cut(units: list[list[int]], sizes: list[int], size: int) -> list[Minibatch]:
    """Consecutive runs of `units`, each closed once it holds at least `size`; a last one under half is merged."""
    runs: list[Minibatch] = [[]]
    filled = 0
    for unit, cost in zip(units, sizes, strict=True):
        if filled >= size:
            runs.append([])
            filled = 0
        runs[-1] += unit
        filled += cost
    if len(runs) > 1 and filled * 2 < size:
        tail = runs.pop()
        runs[-1] += tail
    return runs


@dataclass(frozen=True)
class _Part:
    """Rows that stay in one forward pass, because they share a prefix; `cost` is the number of tokens computed."""

    rows: list[int]
    cost: int


def pack(
    chosen: Minibatch,
    rows: Sequence[Row],
    budget: int,
    ranks: int,
    shared: int | None = None,
    *,
    paired: bool = False,
) -> list[list[MicroBatch]]:
    """For each rank the same number of micro-batches of at most `budget` computed tokens (a longer row stands alone).

    Largest part first into the emptiest bin; bins of similar size meet in one pass, because ranks wait for each other.
    Rows that share a prefix are one part, or cut into several where that ends sooner: then the prefix is computed in each.
    With `paired` a group is one part whatever its size: its loss is of all its rows at once.
    """
    if paired:
        groups: dict[str, list[int]] = {}
        for i in chosen:
            groups.setdefault(rows[i].group, []).append(i)
        wholes = [_Part(group, sum(len(rows[i].ids) for i in group)) for group in groups.values()]
        _, bins = _balanced(wholes, budget, ranks)
        return [bins[rank::ranks] for rank in range(ranks)]
    ids = [rows[i].ids for i in chosen]
    order, taken = overlaps(ids, shared)
    line = [(chosen[r], len(ids[r]), own) for r, own in zip(order, taken, strict=True)]
    share = ceil(sum(length - own for _, length, own in line) / ranks)  # of a rank, if nothing is computed twice
    limits = {budget} if shared is None else {min(budget, ceil(share * cut)) for cut in CUTS}
    plans = [_balanced(_parts(line, limit), budget, ranks) for limit in sorted(limits, reverse=True)]
    _, bins = min(plans, key=lambda plan: plan[0])
    return [bins[rank::ranks] for rank in range(ranks)]


def _parts(line: list[tuple[int, int, int]], limit: int) -> list[_Part]:
    """Cuts (row, length, tokens taken from the row before) where nothing is shared, and where `limit` would be passed."""
    parts: list[_Part] = []
    for row, length, own in line:
        if own and parts[-1].cost + length - own <= limit:
            parts[-1] = _Part([*parts[-1].rows, row], parts[-1].cost + length - own)
        else:
            parts.append(_Part([row], length))
    return parts


def _balanced(parts: list[_Part], budget: int, ranks: int) -> tuple[int, list[MicroBatch]]:
    """Bins, largest first, a multiple of `ranks` in number, and the tokens that are waited for: each pass's largest bin."""
    ordered = sorted(parts, key=lambda part: (-part.cost, part.rows[0]))
    passes = max(1, ceil(sum(part.cost for part in parts) / (budget * ranks)))
    while True:
        bins: list[list[_Part]] = [[] for _ in range(passes * ranks)]
        loads = [0] * len(bins)
        by_load = [(0, b) for b in range(len(bins))]  # a heap: the emptiest first, of those the first
        for part in ordered:
            _, emptiest = by_load[0]
            bins[emptiest].append(part)
            loads[emptiest] += part.cost
            heapreplace(by_load, (loads[emptiest], emptiest))
        if all(load <= budget or len(held) == 1 for load, held in zip(loads, bins, strict=True)):
            break
        passes += 1
    by_size = sorted(range(len(bins)), key=lambda b: -loads[b])
    waited_for = sum(loads[b] for b in by_size[::ranks])
    return waited_for, [[i for part in bins[b] for i in part.rows] for b in by_size]
