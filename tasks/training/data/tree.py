"""Rows that begin alike as one packed sequence: what they share is there once. Imports no torch.

Sorted, every row is the one before it up to some token and then its own; so a packed sequence is the first row, then of every
further row what is new, and a prefix tree over the rows in depth-first order is what results. Token j is an ancestor of
token i, or i itself, exactly where `j <= i < reach[j]`: a whole tree of masks is one number per token.

Shared prefixes in attention: Hydragen (arXiv 2402.05099). Training on the tree instead of its branches: Tree Training (2511.00413).
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Segment:
    """Neighbouring tokens `[start, end)` that the same rows have; all tokens behind them up to `reach` descend from them."""

    start: int
    end: int
    reach: int


@dataclass(frozen=True)
class Tree:
    """A packed sequence over some rows. `places[r]` is where each token of row r stands in it."""

    ids: Ints  # [tokens]
    depths: Ints  # [tokens], position in the row: 0 for its first token
    reach: Ints  # [tokens]
    places: list[Ints]
    segments: list[Segment]

    @property
    def longest(self) -> int:
        return int(self.depths.max()) + 1


def overlaps(rows: Sequence[Ints], shared: int | None) -> tuple[list[int], list[int]]:
    """The rows' order, and for each in that order how many of its first tokens it takes from the row before it.

    A branch is made only where it saves at least `shared` tokens over branching nearer to the root; None shares nothing.
    """
    if shared is None:
        return list(range(len(rows))), [0] * len(rows)
    keys = [row.astype(">i8").tobytes() for row in rows]  # bytes compare as ids do
    order = sorted(range(len(rows)), key=lambda r: (keys[r], r))
    taken, branches = [0] * min(1, len(rows)), list[int]()
    for before, row in itertools.pairwise(order):
        common = _common(rows[before], rows[row])
        while branches and branches[-1] > common:
            branches.pop()
        nearest = branches[-1] if branches else 0
        if common - nearest >= shared:
            branches.append(common)
            nearest = common
        taken.append(nearest)
    return order, taken


def _common(one: Ints, other: Ints) -> int:
    length = min(len(one), len(other))
    different = np.flatnonzero(one[:length] != other[:length])
    return int(different[0]) if len(different) else length


def tree_of(rows: Sequence[Ints], shared: int | None) -> Tree:
    """Packs at least one row of at least one token."""
    order, taken = overlaps(rows, shared)
    sizes = [len(rows[r]) - own for r, own in zip(order, taken, strict=True)]
    starts = np.cumsum([0, *sizes])
    reach = np.full(starts[-1], starts[-1])
    places: list[Ints] = [np.zeros(0, np.int64)] * len(rows)
    before = places[0]
    for r, own, start, end in zip(order, taken, starts, starts[1:], strict=False):
        reach[before[own:]] = start
        before = places[r] = np.concatenate([before[:own], np.arange(start, end)])
    ids = np.concatenate([rows[r][own:] for r, own in zip(order, taken, strict=True)])
    depths = np.concatenate([np.arange(own, len(rows[r])) for r, own in zip(order, taken, strict=True)])
    return Tree(ids, depths, reach, places, _segments(reach, starts))


def _segments(reach: Ints, starts: Ints) -> list[Segment]:
    edges = np.unique(np.concatenate([[0, len(reach)], starts, np.flatnonzero(np.diff(reach)) + 1]))
    return [Segment(int(a), int(b), int(reach[a])) for a, b in itertools.pairwise(edges)]
