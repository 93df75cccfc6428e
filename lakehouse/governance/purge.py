"""Rows that go for good: out of the newest version, then with every file of every older version that holds them.

Other files of older versions stay, so a version that never held the rows can be read as before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from lakehouse import layout, store
from lakehouse.governance import deltalog
from lakehouse.governance.deltalog import Span
from lakehouse.governance.files import Files, current


@dataclass(frozen=True)
class Rule:
    """Which rows go and how.

    `change` commits a version without them and returns how many rows that was; `held` tells per row of a file, given as
    these `columns` as far as the file has them, whether it is one of those rows.
    """

    columns: list[str]
    change: Callable[[DeltaTable], int]
    held: Callable[[pa.Table], pa.Array]


@dataclass(frozen=True)
class Purged:
    """`rows` of the newest version, `files` of older ones; `lost` are the versions these were part of."""

    rows: int
    files: int
    lost: list[Span]


def rows_with(table: str, column: str, values: Sequence[str]) -> Rule:
    """The table's rows whose `column` is one of `values`."""
    wanted = pa.array(sorted(set(values)), pa.string())

    def held(data: pa.Table) -> pa.Array:
        return pc.is_in(data[column], value_set=wanted)

    def change(delta: DeltaTable) -> int:
        listed = ", ".join("'" + value.replace("'", "''") + "'" for value in wanted.to_pylist())
        told = delta.delete(f"{column} in ({listed})", writer_properties=layout.properties(table))
        return int(told["num_deleted_rows"])

    return Rule([column], change, held)


def purge(lake: str, table: str, rule: Rule, *, losing: Callable[[list[Span]], None] = lambda _: None) -> Purged:
    """Apply a rule to a table. `losing` is told which versions will not be readable before any file goes.

    Repeating it after a crash finishes what was begun. Readers of an older version that are at work fail, and find the
    rows gone when they try again.
    """
    with store.exclusive(lake, table):
        delta = store.opened(lake, table)
        if delta is None:
            return Purged(0, 0, [])
        there = rule.held(store.read(lake, delta, rule.columns))
        rows = rule.change(delta) if pc.any(there).as_py() else 0
        delta.update_incremental()
        files = Files(lake, delta)
        kept = current(delta)
        gone = {path for path in files.data() if path not in kept and _holds(files, path, rule)}
        named = deltalog.lifetimes(files, gone) if gone else {}
        if not store.is_folder(lake):  # no lock keeps a landing from committing what it has written
            gone -= {path for path in gone - named.keys() if files.in_flight(path)}
        spans = deltalog.merged(named.values())
        losing(spans)
        if gone or rows:
            deltalog.scrub(files, gone)
        for path in sorted(gone):
            files.delete(path)
        return Purged(rows, len(gone), spans)


def _holds(files: Files, path: str, rule: Rule) -> bool:
    """Whether a file holds such rows. One that cannot be read, and that nobody is writing any more, is of a killed writer."""
    data = files.columns(path, rule.columns)
    if data is None:
        return not files.in_flight(path)
    if set(rule.columns) - set(data.column_names):
        return False  # from before the table had the column
    return bool(pc.any(rule.held(data)).as_py())
