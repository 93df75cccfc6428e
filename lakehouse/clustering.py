"""Clustering: small files become large ones in the order of their episodes, so that a look-up opens few.

A size-tiered log-structured merge. Large files that do not overlap form a run, a small one is a run of its own; the smallest
runs are merged into one as long as the next is not much larger than all of them together. So a lake of N bytes has about
log N runs, each row is rewritten about log N times, and a look-up opens about one file per run.

Merging streams: of each file one row group is in memory. Files are written first and committed in one transaction with the
removal of those they replace, without a change of data. The table's lock is held for the commit only: landing goes on. A
merge that an erasure overtakes gives up and leaves nothing.
"""

import itertools
import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from lakehouse import commits, layout, store
from lakehouse.records import now
from lakehouse.schema import TABLES

GROWTH = 2  # a run is merged with the smaller ones if it is at most this much larger than all of them together
SMALL = 4  # a file of less than one such part of the wanted size is merged with others although they do not overlap
AT_ONCE = 64  # files merged at once, each with a row group in memory
WINDOW = 32  # further row groups that are read to sort more rows at once
_LAST = "\U0010ffff"  # above every id


@dataclass(frozen=True)
class File:
    """A data file and the episode ids it spans."""

    path: str
    size: int
    first: str
    last: str


def cluster(lake: str, table: str, *, only_small: bool = False) -> int:
    """Merge what is worth merging, once; how many files were replaced. store.Overtaken where it came to nothing.

    `only_small`: small files among themselves, which takes a moment however large the table is.
    """
    delta, small = store.opened(lake, table), layout.file_bytes(table) // SMALL
    files = [] if delta is None else [one for one in _files(delta) if one.size < small or not only_small]
    merged = chosen(runs(files, small=small))
    if delta is None or len(merged) < 2:
        return 0
    sink = _Sink(store.filesystem(lake, delta), table)
    try:
        with ExitStack() as stack:
            sources = [_source(stack, sink.files, lake, table, one.path) for one in merged]
            for rows in _in_order(sources, table):
                sink.write(rows)
            sink.close()
        _commit(lake, table, merged, sink)
    except BaseException:  # an interrupt too: what is half written is no file of the table
        sink.discard()
        raise
    return len(merged)


def runs(files: Sequence[File], *, small: int) -> list[list[File]]:
    """Large files in as few runs as there can be, those of a run follow each other; each small file is a run of its own."""
    found: list[list[File]] = []
    for one in sorted((one for one in files if one.size >= small), key=lambda file: (file.first, file.last)):
        before = [run for run in found if run[-1].last <= one.first]
        if before:
            max(before, key=lambda run: run[-1].last).append(one)
        else:
            found.append([one])
    return found + [[one] for one in files if one.size < small]


def chosen(found: Sequence[Sequence[File]]) -> list[File]:
    """The files of the smallest runs, up to the last run that is not much larger than those before it together."""
    ordered = sorted(found, key=_bytes)
    total, upto = 0, 0
    for index, run in enumerate(ordered):
        if _bytes(run) <= GROWTH * total:
            upto = index + 1
        total += _bytes(run)
    return sorted((one for run in ordered[:upto] for one in run), key=lambda one: one.size)[:AT_ONCE]


def _bytes(run: Sequence[File]) -> int:
    return sum(one.size for one in run)


def _files(delta: DeltaTable) -> list[File]:
    """The table's files. One without statistics may hold any id."""
    rows = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    return [
        File(row["path"], row["size_bytes"], row.get("min.episode_id") or "", row.get("max.episode_id") or _LAST)
        for row in rows
    ]


def _source(stack: ExitStack, files: pyarrow.fs.FileSystem, lake: str, table: str, path: str) -> "_Source":
    with store.reading(lake, table, path):
        return _Source(stack.enter_context(files.open_input_file(path)), lake, table, path)


class _Source:
    """One file as batches in the order of episodes: a row group each, or the whole where it did not land in order."""

    def __init__(self, file: pa.NativeFile, lake: str, table: str, path: str) -> None:
        self._lake, self._table, self._path = lake, table, path
        self._held = pq.ParquetFile(file)
        spans = [
            store.span(self._held.metadata.row_group(number), "episode_id")
            for number in range(self._held.num_row_groups)
        ]
        told = [span for span in spans if span is not None]
        self._ordered = len(told) == len(spans) and all(one[1] <= two[0] for one, two in itertools.pairwise(told))
        self._unread = [one[0] for one in told] if self._ordered else [""]  # the first id of each batch
        self.rows: Any = None  # a pa.Table; None at the end
        self._next()

    @property
    def first(self) -> str:
        return str(self.rows["episode_id"][0].as_py())

    @property
    def last(self) -> str:
        return str(self.rows["episode_id"][-1].as_py())

    def batches(self, upto: str) -> int:
        """How many batches have to be read to have all rows up to an id."""
        return bisect_right(self._unread, upto)

    def take(self, upto: str) -> list[pa.Table]:
        """The rows up to an id."""
        taken = []
        while self.rows is not None and self.first <= upto:
            count = pc.sum(pc.less_equal(self.rows["episode_id"], upto)).as_py()
            taken.append(self.rows.slice(0, count))
            if count < self.rows.num_rows:
                self.rows = self.rows.slice(count)
            else:
                self._next()
        return taken

    def _next(self) -> None:
        if not self._unread:
            self.rows = None
            return
        number = self._held.num_row_groups - len(self._unread)
        self._unread.pop(0)
        with store.reading(self._lake, self._table, self._path):
            rows = self._held.read_row_group(number) if self._ordered else self._held.read()
        columns = [
            rows[field.name].cast(field.type)
            if field.name in rows.column_names
            else pa.nulls(rows.num_rows, field.type)
            for field in TABLES[self._table].arrow
        ]
        self.rows = layout.clustered(self._table, pa.table(columns, schema=TABLES[self._table].arrow))


def _in_order(sources: Sequence[_Source], table: str) -> Iterator[pa.Table]:
    """The rows of all sources in order, as many at a time as a bounded number of batches holds."""
    left = [source for source in sources if source.rows is not None]
    while left:
        ends = sorted(source.last for source in left)
        upto = ends[0]  # needs no more than what is in memory
        for end in ends[1:]:
            if sum(source.batches(end) for source in left) > WINDOW:
                break
            upto = end
        parts = [rows for source in left for rows in source.take(upto)]
        yield layout.clustered(table, pa.concat_tables(parts))
        left = [source for source in left if source.rows is not None]


class _Sink:
    """Rows in order become files of about `layout.file_bytes`."""

    def __init__(self, files: pyarrow.fs.FileSystem, table: str) -> None:
        self.files = files
        self.added: list[AddAction] = []
        self._table = table
        self._group = 0  # rows of a row group, of the size that the first rows have
        self._held: list[pa.Table] = []
        self._path = ""
        self._stream: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._statistics = _Statistics(table)

    def write(self, rows: pa.Table) -> None:
        self._held.append(rows)
        self._group = self._group or layout.rows_per_group(self._table, rows)
        if sum(held.num_rows for held in self._held) >= self._group:
            rows = pa.concat_tables(self._held)
            whole = rows.num_rows - rows.num_rows % self._group
            for start in range(0, whole, self._group):
                self._put(rows.slice(start, self._group))
            self._held = [rows.slice(whole)]

    def close(self) -> None:
        """Write what is left."""
        rest = pa.concat_tables(self._held)
        if rest.num_rows:
            self._put(rest)
        self._finish()

    def discard(self) -> None:
        """Delete what was written."""
        if self._stream is not None:
            self._stream.close()
        for path in {self._path, *(one.path for one in self.added)} - {""}:
            if self.files.get_file_info(path).type == pyarrow.fs.FileType.File:
                self.files.delete_file(path)

    def _put(self, rows: pa.Table) -> None:
        if self._writer is None:
            self._path = f"part-{uuid4()}.zstd.parquet"
            self._stream = self.files.open_output_stream(self._path)
            self._writer = pq.ParquetWriter(self._stream, rows.schema, **layout.arrow_options(self._table))
        self._writer.write_table(rows.combine_chunks())
        self._statistics.add(rows)
        if self._stream is not None and self._stream.tell() >= layout.file_bytes(self._table):
            self._finish()

    def _finish(self) -> None:
        if self._writer is None or self._stream is None:
            return
        self._writer.close()
        self._stream.close()
        size = self.files.get_file_info(self._path).size
        millis = int(now().timestamp() * 1000)
        self.added.append(AddAction(self._path, size, {}, millis, False, self._statistics.json()))
        self._path, self._stream, self._writer, self._statistics = "", None, None, _Statistics(self._table)


class _Statistics:
    """What Delta's log says of a file's rows, for the columns that files are chosen by."""

    def __init__(self, table: str) -> None:
        by = ("episode_id", *TABLES[table].asked_by)
        self._names = [f.name for f in TABLES[table].arrow if f.name in by or pa.types.is_timestamp(f.type)]
        self._rows = 0
        self._least: dict[str, Any] = {}
        self._most: dict[str, Any] = {}

    def add(self, rows: pa.Table) -> None:
        self._rows += rows.num_rows
        for name in self._names:
            span = pc.min_max(rows[name]).as_py()
            self._least[name] = min(self._least.get(name, span["min"]), span["min"])
            self._most[name] = max(self._most.get(name, span["max"]), span["max"])

    def json(self) -> str:
        # Times are kept to the millisecond: the largest is rounded up, so that the span holds every row.
        most = {k: v + timedelta(milliseconds=1) if isinstance(v, datetime) else v for k, v in self._most.items()}
        said = {"numRecords": self._rows, "minValues": _told(self._least), "maxValues": _told(most), "nullCount": {}}
        return json.dumps(said)


def _told(values: dict[str, Any]) -> dict[str, str]:
    return {
        name: value.isoformat(timespec="milliseconds").replace("+00:00", "Z") if isinstance(value, datetime) else value
        for name, value in values.items()
    }


def _commit(lake: str, table: str, merged: Sequence[File], sink: _Sink) -> None:
    with store.exclusive(lake, table):
        delta = commits.opened(lake, table)
        active = {one.path for one in _files(delta)}
        gone = [one.path for one in merged if one.path not in active]
        lost = [one.path for one in sink.added if sink.files.get_file_info(one.path).type != pyarrow.fs.FileType.File]
        if gone or lost:
            raise store.Overtaken(table, gone or lost)
        millis = int(now().timestamp() * 1000)
        removed = [RemoveAction(one.path, False, millis, one.size, {}) for one in merged]
        delta.create_write_transaction([*sink.added, *removed], "append", delta.schema())
