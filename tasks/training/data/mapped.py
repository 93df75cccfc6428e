"""Training rows in a file that is mapped and never read whole: a row is made when it is asked for. Imports no torch."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from tasks.training.errors import RowsRefused

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[Any]
ByRow = dict[int, np.ndarray]  # row number -> a value for each of its trained tokens

AT_ONCE = 256  # rows decoded at a time
LISTS = ("input_ids", "loss_mask", "logprobs", "weight_versions")
REAL = ("logprobs", "reward", "advantage", "advantages")  # numbers of any kind; other lists and row_index are integers


@dataclass(frozen=True)
class Row:
    """One sequence, cut behind its last trained token (nothing later can reach the loss).

    `positions` are those whose next token is trained, so `ids[positions + 1]` are the trained tokens.
    """

    name: str
    ids: Ints
    positions: Ints
    logprobs: Floats  # behaviour log-probs of the trained tokens, in nats
    advantages: Floats  # of the trained tokens
    version: int  # oldest weight version among the trained tokens; -1 for demonstrations
    episode: str = ""
    group: str = ""  # episodes of one problem in one run; rows of a group stay in one step where they fit
    kind: str = ""  # of problem
    reward: float = 0.0

    @property
    def targets(self) -> Ints:
        return self.ids[self.positions + 1]


class Rows(Sequence[Row]):
    """The rows of a training set by number. Only their places are in memory; pages come and go with the system's cache."""

    def __init__(self, chunks: "list[Chunk]", places: list[tuple[int, int]]) -> None:
        self._chunks = chunks
        self._places = places  # chunk and number in it

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, number: int) -> Row: ...
    @overload
    def __getitem__(self, number: slice) -> "Rows": ...
    def __getitem__(self, number: int | slice) -> "Row | Rows":
        if isinstance(number, slice):
            return Rows(self._chunks, self._places[number])
        chunk, inside = self._places[number]
        return self._chunks[chunk].row(inside)

    def __iter__(self) -> Iterator[Row]:
        return (self[number] for number in range(len(self)))

    def only(self, numbers: Sequence[int]) -> "Rows":
        return Rows(self._chunks, [self._places[number] for number in numbers])


class Chunk:
    """Some rows as Arrow laid them down; arrays are views of the mapped file."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def row(self, i: int) -> Row:
        ids, mask, logprobs, versions = (self._slice(name, i) for name in LISTS)
        trained = np.flatnonzero(mask)
        end = int(trained[-1]) + 1 if len(trained) else 0
        episode, group, kind = (self._batch[name][i].as_py() for name in ("episode_id", "group_id", "problem_kind"))
        return Row(
            name=f"{episode}#{self._batch['row_index'][i].as_py()}",
            ids=ids[:end].astype(np.int64),
            positions=trained - 1,
            logprobs=logprobs[trained].astype(np.float32),
            advantages=self._advantages(i, trained),
            version=int(versions[trained].min()) if len(trained) else -1,
            episode=episode,
            group=group,
            kind=kind,
            reward=self._batch["reward"][i].as_py(),
        )

    def unequal(self) -> list[int]:
        """Numbers of the rows whose lists differ in length."""
        lengths = [np.diff(self._offsets[name]) for name in LISTS]
        different = np.any([lengths[0] != other for other in lengths[1:]], axis=0)
        if self._own is not None:
            different |= self._own & (np.diff(self._offsets["advantages"]) != lengths[0])
        return np.flatnonzero(different).tolist()

    @property
    def training_sets(self) -> set[str]:
        return set(self._batch["training_set_id"].unique().to_pylist())

    @property
    def indices(self) -> Ints:
        found: Ints = self._batch["row_index"].to_numpy(zero_copy_only=False).astype(np.int64)
        return found

    def _advantages(self, i: int, trained: Ints) -> Floats:
        """The row's `advantages`, or where it has none its `advantage` for all."""
        if self._own is not None and self._own[i]:
            return self._slice("advantages", i)[trained].astype(np.float32)
        return np.full(len(trained), self._batch["advantage"][i].as_py(), np.float32)

    @cached_property
    def _own(self) -> npt.NDArray[np.bool_] | None:
        """Which rows have an advantage of their own for each token; None where no row has."""
        if "advantages" not in self._batch.schema.names or self._batch["advantages"].null_count == len(self._batch):
            return None
        valid: npt.NDArray[np.bool_] = self._batch["advantages"].is_valid().to_numpy(zero_copy_only=False)
        return valid

    @cached_property
    def _offsets(self) -> dict[str, Numbers]:
        names = [*LISTS, "advantages"] if self._own is not None else LISTS
        return {name: self._batch[name].offsets.to_numpy() for name in names}

    @cached_property
    def _values(self) -> dict[str, Numbers]:
        return {name: self._batch[name].values.to_numpy(zero_copy_only=False) for name in self._offsets}

    def _slice(self, name: str, i: int) -> Numbers:
        offsets = self._offsets[name]
        return self._values[name][offsets[i] : offsets[i + 1]]


def mapped(file: Path, columns: Sequence[str]) -> tuple[list[Chunk], dict[bytes, bytes]]:
    """The file's columns and its own notes. A Parquet file is decoded piece by piece into an Arrow file without a name."""
    if not file.is_file():
        raise RowsRefused(f"no training rows at {file}: export the training set there first")
    if file.suffix not in {".parquet", ".arrow"}:
        raise RowsRefused(f"{file} is neither .parquet nor .arrow")
    try:
        found = _decoded(file, columns) if file.suffix == ".parquet" else _opened(file)
    except pa.ArrowInvalid as error:
        raise RowsRefused(f"{file} cannot be read as {file.suffix[1:]}: {error}") from None
    missing = set(columns) - set(found.schema.names)
    if missing:
        raise RowsRefused(f"{file} lacks the columns {sorted(missing)}: export it from a pinned training set")
    if wrong := [
        f"{name} ({found.schema.field(name).type})" for name in found.schema.names if _foreign(found.schema, name)
    ]:
        raise RowsRefused(
            f"{file} has columns of other types: {', '.join(wrong)}: export it from a pinned training set"
        )
    batches = [found.get_batch(number) for number in range(found.num_record_batches)]
    names = [name for name in found.schema.names if name in columns or name == "advantages"]
    if nulls := [name for name in names if any(_lacking(batch[name], name) for batch in batches)]:
        raise RowsRefused(f"{file} has rows without {', '.join(nulls)} (null): export it from a pinned training set")
    return [Chunk(batch) for batch in batches if len(batch)], dict(found.schema.metadata or {})


def _foreign(schema: pa.Schema, name: str) -> bool:
    """Whether a column that is read as numbers holds none, or in no lists."""
    kind = schema.field(name).type
    if name == "advantages" and pa.types.is_null(kind):  # no row has its own
        return False
    if name in LISTS or name == "advantages":
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            return True
        kind = kind.value_type
    elif name not in (*REAL, "row_index"):
        return False
    return not (pa.types.is_integer(kind) or (name in REAL and pa.types.is_floating(kind)))


def _lacking(column: pa.Array, name: str) -> bool:
    """Whether a value is null, in a row or in its list; a row may be without `advantages` of its own."""
    listed = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    return bool((name != "advantages" and column.null_count) or (listed and column.values.null_count))


def _opened(file: Path) -> Any:
    return pyarrow.ipc.open_file(pa.memory_map(str(file)))


def _decoded(file: Path, columns: Sequence[str]) -> Any:
    folder = file.parent if os.access(file.parent, os.W_OK) else None
    with pyarrow.parquet.ParquetFile(file) as source, tempfile.NamedTemporaryFile(dir=folder, prefix=".rows-") as draft:
        schema = source.schema_arrow
        names = [name for name in schema.names if name in columns or name == "advantages"]
        kept = pa.schema([schema.field(name) for name in names], metadata=schema.metadata)
        with pa.ipc.new_file(draft.name, kept) as target:
            for batch in source.iter_batches(AT_ONCE, columns=names):
                target.write_batch(pa.RecordBatch.from_arrays([batch[name] for name in names], schema=kept))
        return _opened(Path(draft.name))  # the mapping outlives the name
