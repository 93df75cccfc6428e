"""Where a table lies, whether it is ours, which version it has, and who may write it now."""

import json
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq
from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from lakehouse.home import home
from lakehouse.locks import locked
from lakehouse.objects import is_folder as is_folder
from lakehouse.objects import options as options
from lakehouse.schema import TABLES

Condition = tuple[str, Literal["in", ">="], Any]  # column, operator, value
T = TypeVar("T")
LOCK_DEADLINE_S = 300.0  # a compaction of a large table may hold the lock this long
LOOKS, BETWEEN_LOOKS_S = 3, 0.1
LOG_KEPT = {  # table properties: a checkpoint would else end versions that a training set pins, and every commit list the log
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.enableExpiredLogCleanup": "false",
}
VERSION_KEY = "lakeloop.schemaVersion"  # table property: the schema version that wrote it last; none: 1


class LakeError(RuntimeError):
    """A table cannot be used as it lies there."""


class LakeBusy(TimeoutError):
    """Another process held a table's lock beyond the deadline."""


class Overtaken(RuntimeError):
    """Files that were being read were rewritten meanwhile; nothing was changed, and a second try reads the new ones."""

    def __init__(self, table: str, files: Sequence[str]) -> None:
        super().__init__(
            f"table {table}: {len(files)} of the files that were being read were rewritten meanwhile, {files[0]} first; "
            "run it again"
        )


class BrokenTable(LakeError):
    """Files of a table are missing, damaged or half-written."""

    def __init__(self, table: str, where: str, cause: Exception) -> None:
        said = (
            str(cause).strip().partition("\n   0: ")[0].rstrip(". \n")
        )  # the Delta library adds where it was in its code
        super().__init__(
            f"table {table} at {where} cannot be read: {said[:500]}. Nothing was written. Restore the file that this names from "
            "a backup, or move the table's folder away to begin it anew"
        )


class ForeignTable(LakeError):
    """A Delta table that is not Lakeloop's lies at a table's place."""

    def __init__(self, table: str, where: str, cause: str) -> None:
        super().__init__(
            f"{where} holds a Delta table that is not Lakeloop's {table!r}: {cause}. Move it away, or set LAKELOOP_LAKE to "
            "another place"
        )


class NoFolder(LakeError):
    """A file lies where the lake or one of its tables should be."""

    def __init__(self, where: str) -> None:
        super().__init__(f"{where} is a file, not a folder: move it away, or set LAKELOOP_LAKE to another place")


class NewerLake(LakeError):
    """A later release wrote the table: this one would lose what it does not know."""

    def __init__(self, table: str, version: int, unknown: list[str]) -> None:
        extra = f", with columns this one does not know ({', '.join(unknown)})" if unknown else ""
        super().__init__(
            f"table {table} was written by a later release (schema version {version}{extra}): reading works, writing "
            "needs that release"
        )


def location(lake: str | None) -> str:
    """The lake's folder or object-store URL; None is the home folder's. NoFolder where a file lies there."""
    where = (lake or home().lake).rstrip("/")
    if is_folder(where) and Path(where).is_file():
        raise NoFolder(where)
    return where


def uri(lake: str, table: str) -> str:
    """The table's location. KeyError names the tables there are."""
    if table not in TABLES:
        raise KeyError(f"no table {table!r} in the lake; there are {', '.join(TABLES)}")
    return f"{lake}/{table}"


def opened(lake: str, table: str) -> DeltaTable | None:
    """The table at its newest version, or None before its first write.

    BrokenTable where its log cannot be read, ForeignTable where it is another one.
    """
    where = uri(lake, table)
    if is_folder(lake) and not is_there(where):
        return None  # answers for a folder without asking the Delta library
    told = options(lake)
    try:
        delta = settled(lambda: DeltaTable(where, storage_options=told), but=TableNotFoundError)
        _check_ours(delta, table, where)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError, ValueError) as error:
        raise BrokenTable(table, where, error) from error
    return delta


def settled(look: Callable[[], T], *, but: type[Exception] | tuple[type[Exception], ...] = ()) -> T:
    """What a look into a table's log gives; tried again where it fails, except for the errors `but`.

    An erasure puts other content, of another size, under the name of a log's file: whoever asked for the size before and reads
    after meets a file that seems damaged. A second look does not; what fails three times is what it seems.
    """
    for _ in range(LOOKS - 1):
        try:
            return look()
        except but:
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the last look tells it
            time.sleep(BETWEEN_LOOKS_S)
    return look()


def is_there(folder: str) -> bool:
    """Whether a table has been written to a folder. NoFolder where a file lies there."""
    if Path(folder, "_delta_log").is_dir():
        return True
    if Path(folder).is_file():
        raise NoFolder(folder)
    return False


def versions(lake: str) -> dict[str, int]:
    """The newest Delta version of every table written so far.

    Read parents first, while landing writes children first: every episode in these versions has its children there.
    """
    found = {name: _version(lake, name) for name in TABLES}
    return {name: version for name, version in found.items() if version is not None}


def _version(lake: str, table: str) -> int | None:
    if is_folder(lake):
        return newest(Path(uri(lake, table), "_delta_log"))
    delta = opened(lake, table)
    return None if delta is None else delta.version()


def newest(log: Path, known: int | None = None) -> int | None:
    """The newest version in a log's folder; None where there is none. `known`: one that is there.

    From the last checkpoint on, one after the other: the log of a long life is a large folder, and takes long to list.
    """
    if known is None:
        try:
            known = int(json.loads((log / "_last_checkpoint").read_bytes())["version"])
        except (OSError, ValueError, KeyError, TypeError):
            known = -1
    while (log / f"{known + 1:020}.json").exists():
        known += 1
    return None if known < 0 else known


def schema_version(delta: DeltaTable) -> int:
    """Which schema version wrote the table last."""
    return int(delta.metadata().configuration.get(VERSION_KEY) or 1)


def read(lake: str, delta: DeltaTable, columns: Sequence[str], filters: Sequence[Condition] = ()) -> pa.Table:
    """Columns of the rows that pass all filters (column, operator, value), at the version of `delta`.

    Files are chosen by partition and by the statistics in Delta's log, and row groups by those in the file, so that the cost
    is that of those that may hold such rows. A column that the table does not have yet is NULL. BrokenTable where a file is
    gone or damaged, Overtaken where an erasure took it away.
    """
    name = delta.metadata().name or "?"
    spec = TABLES[name].arrow
    files = filesystem(lake, delta)
    needed = list(dict.fromkeys([*columns, *(column for column, _, _ in filters)]))
    schema = pa.schema([spec.field(column) for column in needed])
    found = [schema.empty_table()]
    for row in _chosen(pa.table(delta.get_add_actions(flatten=True)), filters).to_pylist():
        with reading(lake, name, row["path"]), files.open_input_file(unquote(row["path"])) as file:
            held = pq.ParquetFile(file)
            groups = _groups(held.metadata, filters)
            there = [column for column in needed if column in held.schema_arrow.names]
            rows = held.read_row_groups(groups, columns=there)
            count = sum(held.metadata.row_group(number).num_rows for number in groups)
        parts = [
            rows[field.name].cast(field.type)
            if field.name in rows.column_names
            else pa.array([row.get(f"partition.{field.name}")] * count, field.type)
            for field in schema
        ]
        part = pa.table(parts, schema=schema)
        for column, operator, value in filters:
            part = part.filter(_passes(part[column], operator, value))
        found.append(part)
    return pa.concat_tables(found).select(list(columns))


@contextmanager
def reading(lake: str, table: str, path: str) -> Iterator[None]:
    """BrokenTable where a data file cannot be read; Overtaken where it is no file of the newest version any more."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        newest = opened(lake, table)
        if newest is not None and path not in pa.table(newest.get_add_actions())["path"].to_pylist():
            raise Overtaken(table, [path]) from error
        raise BrokenTable(table, f"{uri(lake, table)}/{path}", error) from error


def _chosen(files: pa.Table, filters: Sequence[Condition]) -> pa.Table:
    """The files that may hold rows that pass."""
    for column, operator, value in filters:
        if f"partition.{column}" in files.column_names:
            files = files.filter(_passes(files[f"partition.{column}"], operator, value))
        elif f"max.{column}" in files.column_names:
            # A log keeps times to the millisecond, so a file's newest row may be up to one later than it says.
            slack = value - timedelta(milliseconds=1) if isinstance(value, datetime) else value
            spans = zip(files[f"min.{column}"].to_pylist(), files[f"max.{column}"].to_pylist(), strict=True)
            may = _within(operator, slack)
            files = files.filter(pa.array([may(least, most) for least, most in spans], pa.bool_()))
    return files.select([name for name in files.column_names if name == "path" or name.startswith("partition.")])


def _groups(about: pq.FileMetaData, filters: Sequence[Condition]) -> list[int]:
    """The row groups that may hold rows that pass."""
    may = [(column, _within(operator, value)) for column, operator, value in filters]
    return [
        number
        for number in range(about.num_row_groups)
        if all(within(*(span(about.row_group(number), column) or (None, None))) for column, within in may)
    ]


def span(group: pq.RowGroupMetaData, column: str) -> tuple[Any, Any] | None:
    """The least and greatest value of a column in a row group, where it says so."""
    for number in range(group.num_columns):
        about = group.column(number)
        if about.path_in_schema == column:
            found = about.statistics
            return (found.min, found.max) if found is not None and found.has_min_max else None
    return None


def _within(operator: Literal["in", ">="], value: Any) -> Callable[[Any, Any], bool]:
    """Whether a value between a least and a greatest one may pass; None where they are not known."""
    if operator == ">=":
        return lambda least, most: most is None or most >= value
    ordered = sorted(value)

    def within(least: Any, most: Any) -> bool:
        if least is None or most is None:
            return True
        at = bisect_left(ordered, least)
        return at < len(ordered) and ordered[at] <= most

    return within


def _passes(values: pa.ChunkedArray, operator: Literal["in", ">="], value: Any) -> pa.Array:
    if operator == "in":
        return pc.is_in(values, value_set=pa.array(value, values.type))
    return pc.greater_equal(values, pa.scalar(value, values.type))


def filesystem(lake: str, delta: DeltaTable) -> pyarrow.fs.FileSystem:
    """The table's folder as Arrow reads and writes it.

    A folder is read through Arrow's own file system. Read through a Python one, which is deltalake's default, about one
    process in twenty aborts on its way out ("terminate called without an active exception"), its work done. Object
    stores have the default still.
    """
    if is_folder(lake):
        return pyarrow.fs.SubTreeFileSystem(_folder(delta), pyarrow.fs.LocalFileSystem())
    return pyarrow.fs.PyFileSystem(DeltaStorageHandler.from_table(delta._table))


@contextmanager
def exclusive(lake: str, table: str, *, deadline_s: float = LOCK_DEADLINE_S) -> Iterator[None]:
    """Hold the table's lock, so that reading it and then appending is one step.

    Only folder lakes have a lock, released by the kernel when its holder dies. On an object store the application
    transactions of the commits find the conflict instead. LakeBusy after the deadline.
    """
    if not is_folder(lake):
        yield
        return
    path = Path(lake, "_locks", f"{table}.lock")

    def busy(holder: str) -> LakeBusy:
        return LakeBusy(
            f"waited {deadline_s:.0f} s for another writer of table {table!r} to finish ({path}); "
            f"process {holder} holds it: end it, or try again"
        )

    with locked(path, deadline_s=deadline_s, busy=busy):
        yield


def _check_ours(delta: DeltaTable, table: str, where: str) -> None:
    """ForeignTable where the name, the partitions or the type of a column are not the table's."""
    spec, held = TABLES[table], delta.metadata()
    if held.name != table:
        raise ForeignTable(table, where, f"it is named {held.name!r}")
    if tuple(held.partition_columns) not in (spec.partition_by, spec.partitioned_before):
        raise ForeignTable(table, where, f"it is partitioned by {held.partition_columns}")
    there = {field.name: field.type for field in delta.schema().fields}
    for field in _fields(table):
        if field.name not in there and not field.nullable:
            raise ForeignTable(table, where, f"it has no column {field.name!r}")
        if field.name in there and there[field.name] != field.type:
            raise ForeignTable(table, where, f"its column {field.name!r} is {there[field.name]}, not {field.type}")


@cache
def _fields(table: str) -> tuple[Field, ...]:
    return tuple(Schema.from_arrow(TABLES[table].arrow).fields)


def _folder(delta: DeltaTable) -> str:
    return unquote(urlsplit(delta.table_uri).path)
