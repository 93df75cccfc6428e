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
    """A list column as flat values; the items of row i are values[starts[i] : starts[i] + lengths[i]]."""

    values: npt.NDArray[np.generic]
    starts: Ints
    lengths: Ints

    def of(self, rows: Ints) -> tuple[Ints, Ints]:
        """Flat positions of the items of `rows`, in order, and the position of each item within its list."""
        lengths = self.lengths[rows]
        within = _ramp(lengths)
        return np.repeat(self.starts[rows], lengths) + within, within


def build(calls: pa.Table, *, max_tokens: int) -> Rows:
    """Rows over whole episodes, in the order of `calls` (sorted by episode, then call_index).

    Needs columns call_id, parent (row number of the parent call, NULL for roots), status, prompt_token_ids,
    completion_token_ids, logprobs, weight_versions. BrokenCallTree where a chain's ids do not line up.
    """
    parent = pc.fill_null(calls["parent"], -1).to_numpy().astype(np.int64)
    prompts, completions = _lists(calls["prompt_token_ids"]), _lists(calls["completion_token_ids"])
    trainable = pc.is_in(calls["status"], value_set=TRAINABLE).to_numpy()

    leaves = np.setdiff1d(np.arange(calls.num_rows), parent)
    lengths = prompts.lengths[leaves] + completions.lengths[leaves]
    row, call = _chains(leaves, parent)  # one entry per call on a row's chain
    short = lengths <= max_tokens
    first = np.full(calls.num_rows, len(leaves))
    np.minimum.at(first, call[short[row]], row[short[row]])
    owns = (first[call] == row) & trainable[call] & (completions.lengths[call] > 0)

    reached = first < len(leaves)
    disposition = np.where(~trainable, "masked:call_status", np.where(reached, "trained", "dropped:too_long"))

    kept = np.unique(row[owns])  # rows that train something
    number = np.full(len(leaves), -1)
    number[kept] = np.arange(len(kept))
    on_kept = number[row] >= 0
    chain = _Chain(number[row[on_kept]], call[on_kept], owns[on_kept])
    return _filled(calls, leaves[kept], lengths[kept], chain, prompts, completions, disposition.tolist())


@dataclass(frozen=True)
class _Chain:
    row: Ints
    call: Ints
    owns: npt.NDArray[np.bool_]  # this row trains the call


def _filled(
    calls: pa.Table,
    leaves: Ints,
    lengths: Ints,
    chain: _Chain,
    prompts: _Lists,
    completions: _Lists,
    disposition: list[str],
) -> Rows:
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    ids = np.empty(starts[-1], np.int32)
    source, within = prompts.of(leaves)
    ids[np.repeat(starts[:-1], prompts.lengths[leaves]) + within] = prompts.values[source]
    source, within = completions.of(leaves)
    ids[np.repeat(starts[:-1] + prompts.lengths[leaves], completions.lengths[leaves]) + within] = completions.values[
        source
    ]

    place = _verified(calls, ids, starts, chain, prompts, completions)  # where each chain completion token lies
    source, _ = completions.of(chain.call)
    versions = _lists(calls["weight_versions"])
    version_at = np.full(len(ids), -1, np.int32)
    version_at[place] = versions.values[versions.of(chain.call)[0]]
    mask = np.zeros(len(ids), np.int32)
    mask[place] = np.repeat(chain.owns, completions.lengths[chain.call])

    logprobs = _lists(calls["logprobs"])
    recorded = logprobs.lengths[chain.call] > 0
    held = np.zeros(len(ids), np.float32)
    held[place[np.repeat(recorded, completions.lengths[chain.call])]] = logprobs.values[
        logprobs.of(chain.call[recorded])[0]
    ]
    held[mask == 0] = 0

    def listed(values: npt.NDArray[np.generic]) -> pa.ListArray:
        return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pa.array(values))

    return Rows(leaves, listed(ids), listed(mask), listed(held), listed(version_at), disposition)


def _verified(
    calls: pa.Table, ids: npt.NDArray[np.int32], starts: Ints, chain: _Chain, prompts: _Lists, completions: _Lists
) -> Ints:
    """Places of the chains' completion tokens in `ids`; checks that every chained call's ids are where they must be."""
    places = []
    for lists, offset in ((prompts, np.zeros(len(chain.call), np.int64)), (completions, prompts.lengths[chain.call])):
        source, within = lists.of(chain.call)
        place = np.repeat(starts[chain.row] + offset, lists.lengths[chain.call]) + within
        inside = place < np.repeat(starts[chain.row + 1], lists.lengths[chain.call])
        wrong = ~inside
        wrong[inside] = ids[place[inside]] != lists.values[source[inside]]
        if wrong.any():
            call = np.repeat(chain.call, lists.lengths[chain.call])[wrong][0]
            raise BrokenCallTree(
                f"call {calls['call_id'][int(call)].as_py()!r}: the ids of a later call that names it as "
                "ancestor do not begin with its prompt and completion; the recorder linked the wrong parent"
            )
        places.append(place)
    return places[1]


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


def _ramp(lengths: Ints) -> Ints:
    """0..n-1 for each length n, end to end."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) - np.repeat(ends - lengths, lengths)


def _lists(column: pa.ChunkedArray) -> _Lists:
    """A list column over flat values, NULL as an empty list."""
    lists = column.combine_chunks()
    if isinstance(lists, pa.ChunkedArray):  # no chunk at all
        lists = pa.array([], column.type)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    values = lists.flatten().to_numpy(zero_copy_only=False)
    return _Lists(values, np.cumsum(lengths) - lengths, lengths)
