"""Training rows from call trees: one row per leaf, its chain of calls laid end to end, built over flat token arrays.

A child's prompt begins with its parent's prompt and completion, so the leaf's prompt and completion are the whole
chain; what remains is to mark where each call's completion lies in it. A call on two leaves' chains is trained in the
first.
"""

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


def build(calls: pa.Table, *, max_tokens: int, advantage: Floats | None = None) -> Rows:
    """Rows over whole episodes, ordered by the position of the episode and the leaf's call_index, whatever order calls have.

    Needs columns position, call_index, call_id, parent (row number of the parent call, NULL for roots), status,
    prompt_token_ids, completion_token_ids, logprobs, weight_versions, redacted. `advantage` per call, NaN for one without
    credit, which is not trained. BrokenCallTree where a chain's ids do not line up.
    """
    parent = pc.fill_null(calls["parent"], -1).to_numpy().astype(np.int64)
    tokens = _Tokens.of(calls)
    prompts, completions = tokens.prompts, tokens.completions
    _check_chains(calls, parent, tokens)
    trainable = pc.is_in(calls["status"], value_set=TRAINABLE).to_numpy()
    credited = np.ones(calls.num_rows, bool) if advantage is None else np.isfinite(advantage)
    redactions = _Lists.of(calls["redacted"])
    redacted = redactions.sums()

    is_parent = np.zeros(calls.num_rows, bool)
    is_parent[parent[parent >= 0]] = True
    leaves = _sorted(calls, np.flatnonzero(~is_parent))
    lengths = prompts.lengths[leaves] + completions.lengths[leaves]
    row, call = _chains(leaves, parent)  # one entry per call on a row's chain
    fits = lengths <= max_tokens
    first = np.full(calls.num_rows, len(leaves))
    np.minimum.at(first, call[fits[row]], row[fits[row]])
    trained = trainable & credited & (completions.lengths > redacted)
    owns = (first[call] == row) & trained[call]
    is_kept = np.zeros(len(leaves), bool)  # rows that train something
    is_kept[row[owns]] = True
    kept = np.flatnonzero(is_kept)
    disposition = np.select(
        [~trainable, ~credited, first == len(leaves)],
        ["masked:call_status", "masked:no_credit", "dropped:too_long"],
        "trained",
    )

    starts = np.concatenate([[0], np.cumsum(lengths[kept])])
    total = int(starts[-1])
    start_of = np.zeros(len(leaves), np.int64)
    start_of[kept] = starts[:-1]
    at = start_of[row] + prompts.lengths[call]  # where each call's completion begins
    on_kept = is_kept[row]
    mine, here = call[owns], at[owns]
    ids = tokens.laid(leaves[kept])
    mask = _spans(here, completions.lengths[mine], total)
    versions, logprobs = np.full(total, -1, np.int32), np.zeros(total, np.float32)
    _place(_Lists.of(calls["weight_versions"]), call[on_kept], versions, at[on_kept])
    _place(_Lists.of(calls["logprobs"]), mine, logprobs, here)
    if redacted[mine].any():
        replaced = np.zeros(total, np.int32)
        _place(redactions, mine, replaced, here)
        mask &= replaced == 0
        logprobs[~mask] = 0

    def listed(values: npt.NDArray[Any]) -> pa.ListArray:
        return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pa.array(values))

    advantages = None
    if advantage is not None:
        order = np.argsort(here)
        flat = np.zeros(total, np.float32)
        flat[_spans(here, completions.lengths[mine], total)] = np.repeat(
            advantage[mine[order]], completions.lengths[mine[order]]
        )
        advantages = listed(flat * mask)
    return Rows(
        leaf=leaves[kept],
        input_ids=listed(ids),
        loss_mask=listed(mask.astype(np.int32)),
        logprobs=listed(logprobs),
        weight_versions=listed(versions),
        advantages=advantages,
        disposition=disposition,
        redacted=redacted,
    )


@dataclass(frozen=True)
class _Lists:
    """A list column in one piece; NULL counts as empty."""

    array: pa.ListArray
    lengths: Ints

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> "_Lists":
        joined = column.combine_chunks()
        if isinstance(joined, pa.ChunkedArray):  # no chunk at all
            joined = pa.array([], column.type)
        return cls(joined, pc.fill_null(pc.list_value_length(joined), 0).to_numpy().astype(np.int64))

    def part(self, start: int, count: int) -> "_Lists":
        """Some lists that follow each other, without copying them."""
        return _Lists(self.array.slice(start, count), self.lengths[start : start + count])

    def values(self, which: Ints) -> npt.NDArray[Any]:
        """The lists `which`, laid end to end."""
        taken: npt.NDArray[Any] = self.array.take(pa.array(which)).flatten().to_numpy(zero_copy_only=False)
        return taken

    def sums(self) -> Ints:
        """The sum of each list."""
        total = np.concatenate([[0], np.cumsum(self.array.flatten().to_numpy(zero_copy_only=False), dtype=np.int64)])
        ends = np.cumsum(self.lengths)
        sums: Ints = total[ends] - total[ends - self.lengths]
        return sums


@dataclass(frozen=True)
class _Tokens:
    """Prompts and completions of all calls, and both after one another, so that they are taken at once."""

    prompts: _Lists
    completions: _Lists
    both: _Lists

    @classmethod
    def of(cls, calls: pa.Table) -> "_Tokens":
        prompts, completions = calls["prompt_token_ids"], calls["completion_token_ids"]
        both = _Lists.of(pa.chunked_array([*prompts.chunks, *completions.chunks], prompts.type))
        n = calls.num_rows
        return cls(both.part(0, n), both.part(n, n), both)

    def laid(self, which: Ints) -> npt.NDArray[Any]:
        """Prompt and completion of these calls, laid end to end."""
        return self.both.values(np.stack([which, which + len(self.prompts.lengths)], axis=1).ravel())


def _sorted(calls: pa.Table, which: Ints) -> Ints:
    """These calls by the position of their episode and their number in it."""
    position, index = (calls[name].to_numpy()[which] for name in ("position", "call_index"))
    return which[np.lexsort((index, position))]


def _check_chains(calls: pa.Table, parent: Ints, tokens: _Tokens) -> None:
    """Every prompt begins with the prompt and the completion of its parent; so, step by step, with its whole chain."""
    prompts, completions = tokens.prompts, tokens.completions
    child = np.flatnonzero(parent >= 0)
    above = parent[child]
    lengths = (prompts.lengths + completions.lengths)[above]
    short = prompts.lengths[child] < lengths
    if short.any():
        raise _broken(calls, int(above[short][0]))
    theirs = tokens.laid(above)
    ours = prompts.values(child)
    begins = np.cumsum(prompts.lengths[child]) - prompts.lengths[child]
    differs = np.flatnonzero(theirs != ours[_spans(begins, lengths, len(ours))])
    if len(differs):
        raise _broken(calls, int(above[np.searchsorted(np.cumsum(lengths), differs[0], "right")]))


def _spans(at: Ints, lengths: Ints, total: int) -> Bools:
    """True from `at[i]` on for `lengths[i]` values; no two overlap."""
    steps = np.zeros(total + 1, np.int8)
    some = lengths > 0
    steps[at[some]] += 1
    steps[at[some] + lengths[some]] -= 1
    return np.cumsum(steps[:-1], dtype=np.int8).view(bool)


def _place(source: _Lists, which: Ints, target: npt.NDArray[Any], at: Ints) -> None:
    """`target[at[i] :]` becomes list `which[i]`, for every i; no two overlap."""
    order = np.argsort(at)
    target[_spans(at, source.lengths[which], len(target))] = source.values(which[order])


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
