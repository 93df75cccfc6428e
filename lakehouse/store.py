"""Where a table lies, which version it has, and who may write it now."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs
from deltalake import DeltaTable

from lakehouse.home import home
from lakehouse.locks import locked
from lakehouse.schema import TABLES

LOCK_DEADLINE_S = 300.0  # a compaction of a large table may hold the lock this long


class LakeBusy(TimeoutError):
    """Another process held a table's lock beyond the deadline."""


def location(lake: str | None) -> str:
    """The lake's folder or object-store URL; None is the home folder's."""
    return (lake or home().lake).rstrip("/")


def uri(lake: str, table: str) -> str:
    """The table's location. KeyError names the tables there are."""
    if table not in TABLES:
        raise KeyError(f"no table {table!r} in the lake; there are {', '.join(TABLES)}")
    return f"{lake}/{table}"


def is_folder(lake: str) -> bool:
    return "://" not in lake


def opened(lake: str, table: str) -> DeltaTable | None:
    """The table at its newest version, or None before its first write."""
    where = uri(lake, table)
    if is_folder(lake) and not Path(where, "_delta_log").is_dir():
        return None  # answers for a folder without asking the Delta library
    return DeltaTable(where) if DeltaTable.is_deltatable(where) else None


def versions(lake: str) -> dict[str, int]:
    """The newest Delta version of every table written so far.

    Read parents first, while landing writes children first: every episode in these versions has its children there.
    """
    found = {name: opened(lake, name) for name in TABLES}
    return {name: table.version() for name, table in found.items() if table is not None}


def read(
    lake: str, delta: DeltaTable, columns: list[str], filters: list[tuple[str, str, Any]] | None = None
) -> pa.Table:
    """Columns of the rows that pass the filters (column, operator, value), at the version of `delta`.

    A folder is read through Arrow's own file system. Read through a Python one, which is deltalake's default, about one
    process in twenty aborts on its way out ("terminate called without an active exception"), its work done. Object
    stores have the default still.
    """
    local = pyarrow.fs.SubTreeFileSystem(_folder(delta), pyarrow.fs.LocalFileSystem()) if is_folder(lake) else None
    return delta.to_pyarrow_table(columns=columns, filters=filters, filesystem=local)


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


def _folder(delta: DeltaTable) -> str:
    return unquote(urlsplit(delta.table_uri).path)
