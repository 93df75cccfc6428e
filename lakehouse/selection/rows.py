"""Training rows from call trees: one row per leaf, its chain of calls laid end to end, built over flat token arrays.

A child's prompt begins with its parent's prompt and completion, so the leaf's prompt and completion are the whole
chain; what remains is to mark where each call's completion lies in it. A call on two leaves' chains is trained in the
first.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakehouse.records import Status

Ints = npt.NDArray[np.int64]
TRAINABLE = pa.array([status.value for status in Status if status.trainable])


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
    disposition: list[str]  # per call: "trained", "masked:<reason>" or "dropped:<reason>"


@dataclass(frozen=True)
class _Lists:
    """A list column over flat values; NULL counts as empty."""

    values: npt.NDArray[np.generic]
    starts: Ints
    lengths: Ints

    def __getitem__(self, row: int) -> npt.NDArray[np.generic]:
        start = self.starts[row]
        return self.values[start : start + self.lengths[row]]


def build(calls: pa.Table, *, max_tokens: int) -> Rows:
    """Rows over whole episodes, in the order of `calls` (sorted by episode, then call_index).

    Needs columns call_id, parent (row number of the parent call, NULL for roots), status, prompt_token_ids,
    completion_token_ids, logprobs, weight_versions. BrokenCallTree where a chain's ids do not line up.
    """
    parent = pc.fill_null(calls["parent"], -1).to_numpy().astype(np.int64)
    prompts, completions = _lists(calls["prompt_token_ids"]), _lists(calls["completion_token_ids"])
    trainable = pc.is_in(calls["status"], value_set=TRAINABLE).to_numpy()

    linked = np.flatnonzero(parent >= 0)
    short = prompts.lengths[linked] < (prompts.lengths + completions.lengths)[parent[linked]]
    if short.any():
        raise _broken(calls, int(parent[linked][short][0]))
    leaves = np.setdiff1d(np.arange(calls.num_rows), parent)
    lengths = prompts.lengths[leaves] + completions.lengths[leaves]
    row, call = _chains(leaves, parent)  # one entry per call on a row's chain
    fits = lengths <= max_tokens
    first = np.full(calls.num_rows, len(leaves))
    np.minimum.at(first, call[fits[row]], row[fits[row]])
    owns = (first[call] == row) & trainable[call] & (completions.lengths[call] > 0)

    reached = first < len(leaves)
    disposition = np.where(~trainable, "masked:call_status", np.where(reached, "trained", "dropped:too_long"))

    kept = np.unique(row[owns])  # rows that train something
    starts = np.concatenate([[0], np.cumsum(lengths[kept])])
    start_of = np.zeros(len(leaves), np.int64)
    start_of[kept] = starts[:-1]
    on_kept = np.isin(row, kept)
    filled = _filled(calls, prompts, completions, start_of[row[on_kept]], call[on_kept], owns[on_kept], int(starts[-1]))

    def listed(values: npt.NDArray[np.generic]) -> pa.ListArray:
        return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pa.array(values))

    ids, mask, logprobs, versions = (listed(values) for values in filled)
    return Rows(leaves[kept], ids, mask, logprobs, versions, disposition.tolist())


def _filled(
    calls: pa.Table,
    prompts: _Lists,
    completions: _Lists,
    starts: Ints,
    chain: Ints,
    owns: npt.NDArray[np.bool_],
    total: int,
) -> tuple[npt.NDArray[np.generic], ...]:
    """Flat ids, mask, log-probs and versions of all rows: call `chain[i]` begins at `starts[i]`, leaves come first."""
    recorded, versions = _lists(calls["logprobs"]), _lists(calls["weight_versions"])
    ids, mask = np.full(total, -1, np.int32), np.zeros(total, np.int32)
    logprobs, version_at = np.zeros(total, np.float32), np.full(total, -1, np.int32)
    for start, call, owned in zip(starts.tolist(), chain.tolist(), owns.tolist(), strict=True):
        middle = start + int(prompts.lengths[call])
        end = middle + int(completions.lengths[call])
        if ids[start] < 0:  # the leaf, which holds the ids of its whole chain
            ids[start:middle], ids[middle:end] = prompts[call], completions[call]
        elif not (
            np.array_equal(ids[start:middle], prompts[call]) and np.array_equal(ids[middle:end], completions[call])
        ):
            raise _broken(calls, call)
        version_at[middle:end] = versions[call]
        if owned:
            mask[middle:end] = 1
            if recorded.lengths[call]:
                logprobs[middle:end] = recorded[call]
    return ids, mask, logprobs, version_at


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


def _lists(column: pa.ChunkedArray) -> _Lists:
    """A list column over flat values, NULL as an empty list."""
    lists = column.combine_chunks()
    if isinstance(lists, pa.ChunkedArray):  # no chunk at all
        lists = pa.array([], column.type)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    values = lists.flatten().to_numpy(zero_copy_only=False)
    return _Lists(values, np.cumsum(lengths) - lengths, lengths)
