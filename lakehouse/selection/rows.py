"""Training rows from call trees: one row per leaf, its chain of calls laid end to end, built over flat token arrays.

A child's prompt begins with its parent's prompt and completion, so the leaf's prompt and completion are the whole
chain; what remains is to mark where each call's completion lies in it. A call on two leaves' chains is trained in the
first.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.records import Status

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
TRAINABLE = pa.array([status.value for status in Status if status.trainable])
AT_ONCE = 1 << 22  # values that are copied in one go: what bounds the memory of the indices


class BrokenCallTree(ValueError):
    """A call's recorded ids do not begin with those of its parent."""


@dataclass(frozen=True)
class Rows:
    """Columns of the rows, one value per row, and what became of each call."""

    leaf: Ints  # index of the leaf in `calls`, per row
    input_ids: pa.ListArray  # int32
    loss_mask: pa.ListArray  # int32, 1 where trained
    logprobs: pa.ListArray  # float32, 0 where not trained or none were recorded
    weight_versions: pa.ListArray  # int32, -1 where not sampled by a policy
    advantages: pa.ListArray | None  # float32, 0 where not trained; None where calls had no credit of their own
    disposition: npt.NDArray[np.str_]  # per call: "trained", "masked:<reason>" or "dropped:<reason>"
    redacted: Ints  # per call, how many of its tokens were replaced before they landed: masked wherever it is trained


@dataclass(frozen=True)
class Lists:
    """A list column over flat values; NULL counts as empty."""

    values: npt.NDArray[Any]
    starts: Ints
    lengths: Ints


def build(calls: pa.Table, *, max_tokens: int, advantage: Floats | None = None) -> Rows:
    """Rows over whole episodes, in the order of `calls` (sorted by episode, then call_index).

    Needs columns call_id, parent (row number of the parent call, NULL for roots), status, prompt_token_ids,
    completion_token_ids, logprobs, weight_versions, redacted. `advantage` per call, NaN for one without credit, which is
    not trained. BrokenCallTree where a chain's ids do not line up.
    """
    parent = pc.fill_null(calls["parent"], -1).to_numpy().astype(np.int64)
    prompts, completions = lists(calls["prompt_token_ids"]), lists(calls["completion_token_ids"])
    _check_chains(calls, parent, prompts, completions)
    trainable = pc.is_in(calls["status"], value_set=TRAINABLE).to_numpy()
    credited = np.ones(calls.num_rows, bool) if advantage is None else np.isfinite(advantage)
    redactions = lists(calls["redacted"])
    redacted = _sums(redactions)

    leaves = np.setdiff1d(np.arange(calls.num_rows), parent)
    lengths = prompts.lengths[leaves] + completions.lengths[leaves]
    row, call = _chains(leaves, parent)  # one entry per call on a row's chain
    fits = lengths <= max_tokens
    first = np.full(calls.num_rows, len(leaves))
    np.minimum.at(first, call[fits[row]], row[fits[row]])
    trained = trainable & credited & (completions.lengths > redacted)
    owns = (first[call] == row) & trained[call]
    kept = np.unique(row[owns])  # rows that train something

    disposition = np.select(
        [~trainable, ~credited, first == len(leaves)],
        ["masked:call_status", "masked:no_credit", "dropped:too_long"],
        "trained",
    )
    starts = np.concatenate([[0], np.cumsum(lengths[kept])])
    start_of = np.zeros(len(leaves), np.int64)
    start_of[kept] = starts[:-1]
    ids, mask = np.zeros(int(starts[-1]), np.int32), np.zeros(int(starts[-1]), np.int32)
    logprobs, versions = np.zeros(len(ids), np.float32), np.full(len(ids), -1, np.int32)
    _copy(prompts, leaves[kept], ids, starts[:-1])
    _copy(completions, leaves[kept], ids, starts[:-1] + prompts.lengths[leaves[kept]])
    on_kept = np.isin(row, kept)
    at = start_of[row] + prompts.lengths[call]  # where each call's completion begins
    _copy(lists(calls["weight_versions"]), call[on_kept], versions, at[on_kept])
    mine, here = call[owns], at[owns]
    _fill(mask, here, completions.lengths[mine], np.ones(len(mine), np.int32))
    _copy(lists(calls["logprobs"]), mine, logprobs, here)
    if redacted[mine].any():
        replaced = np.zeros(len(ids), np.int32)
        _copy(redactions, mine, replaced, here)
        mask[replaced == 1], logprobs[replaced == 1] = 0, 0

    def listed(values: npt.NDArray[Any]) -> pa.ListArray:
        return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pa.array(values))

    advantages = None
    if advantage is not None:
        flat = np.zeros(len(ids), np.float32)
        _fill(flat, here, completions.lengths[mine], advantage[mine].astype(np.float32))
        advantages = listed(flat * mask)
    return Rows(
        leaf=leaves[kept],
        input_ids=listed(ids),
        loss_mask=listed(mask),
        logprobs=listed(logprobs),
        weight_versions=listed(versions),
        advantages=advantages,
        disposition=disposition,
        redacted=redacted,
    )


def lists(column: pa.ChunkedArray) -> Lists:
    """A list column over flat values, NULL as an empty list."""
    joined = column.combine_chunks()
    if isinstance(joined, pa.ChunkedArray):  # no chunk at all
        joined = pa.array([], column.type)
    lengths = pc.fill_null(pc.list_value_length(joined), 0).to_numpy().astype(np.int64)
    values = joined.flatten().to_numpy(zero_copy_only=False)
    return Lists(values, np.cumsum(lengths) - lengths, lengths)


def _check_chains(calls: pa.Table, parent: Ints, prompts: Lists, completions: Lists) -> None:
    """Every prompt begins with the prompt and the completion of its parent; so, step by step, with its whole chain."""
    child = np.flatnonzero(parent >= 0)
    above = parent[child]
    short = prompts.lengths[child] < (prompts.lengths + completions.lengths)[above]
    if short.any():
        raise _broken(calls, int(above[short][0]))
    for known, offset in ((prompts, np.zeros(len(child), np.int64)), (completions, prompts.lengths[above])):
        for entry, theirs, ours in _indices(known.starts[above], prompts.starts[child] + offset, known.lengths[above]):
            differs = known.values[theirs] != prompts.values[ours]
            if differs.any():
                raise _broken(calls, int(above[entry[differs]][0]))


def _broken(calls: pa.Table, call: int) -> BrokenCallTree:
    return BrokenCallTree(
        f"call {calls['call_id'][call].as_py()!r}: the ids of a later call that names it as ancestor do not "
        "begin with its prompt and completion; the recorder linked the wrong parent"
    )


def _chains(leaves: Ints, parent: Ints) -> tuple[Ints, Ints]:
    """Walk all leaves up to their roots at once: (row, call) pairs, leaf first."""
    row, call = np.arange(len(leaves)), leaves
    rows, found = [], []
    while len(call):
        rows.append(row)
        found.append(call)
        up = parent[call]
        row, call = row[up >= 0], up[up >= 0]
    empty = [np.zeros(0, np.int64)]
    return np.concatenate(rows or empty), np.concatenate(found or empty)


def _copy(source: Lists, which: Ints, target: npt.NDArray[Any], at: Ints) -> None:
    """`target[at[i] :]` becomes list `which[i]`, for every i."""
    for _, theirs, ours in _indices(source.starts[which], at, source.lengths[which]):
        target[ours] = source.values[theirs]


def _fill(target: npt.NDArray[Any], at: Ints, lengths: Ints, values: npt.NDArray[Any]) -> None:
    """`target[at[i] : at[i] + lengths[i]]` becomes `values[i]`, for every i."""
    for entry, _, ours in _indices(at, at, lengths):
        target[ours] = values[entry]


def _indices(source: Ints, target: Ints, lengths: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
    """For runs `source[i] ..` and `target[i] ..` of `lengths[i]` values: (i, source index, target index) of each value."""
    ends = np.cumsum(lengths)
    first = 0
    while first < len(lengths):
        done = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, done + AT_ONCE, "right")))
        entry = np.repeat(np.arange(first, last), lengths[first:last])
        within = np.arange(len(entry)) + done - (ends - lengths)[entry]
        yield entry, source[entry] + within, target[entry] + within
        first = last


def _sums(flags: Lists) -> Ints:
    """The sum of each list."""
    total = np.concatenate([[0], np.cumsum(flags.values, dtype=np.int64)])
    sums: Ints = total[flags.starts + flags.lengths] - total[flags.starts]
    return sums
