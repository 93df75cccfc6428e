"""A connection that knows every table and view of the lake and opens those that a query names."""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import duckdb
import polars as pl
import pyarrow as pa

from lakehouse import store
from lakehouse.erased import check_pins
from lakehouse.query import engine
from lakehouse.query.errors import NO_ROWS, NotAllowed, QueryError, UnknownPin, Unreadable, refused
from lakehouse.query.guard import admitted
from lakehouse.query.relations import SCHEMAS, behind, relations
from lakehouse.query.roles import shown
from lakehouse.query.snapshots import Snapshot
from lakehouse.schema import TABLES, Table, duckdb_type

_numbers = itertools.count()
T = TypeVar("T")


class Connection:
    """DuckDB over one lake, as `lakehouse.connect` gives it. It only reads: SQL that does more is NotAllowed.

    `sql` gives a DuckDB relation (lazy, composable, printed as a table), `execute` runs at once and is followed by one of
    the `fetch` methods. Temporary tables and variables are the connection's own. Not for two threads at a time.
    """

    def __init__(self, lake: str, pinned: Mapping[str, int | None], role: str | None) -> None:
        self.lake = lake
        self._pinned = dict(pinned)
        self._role = role
        self._made: set[str] = set()  # relations that are there
        self._opened: dict[
            str, Snapshot | None
        ] = {}  # tables that are more than their empty likeness; None: nothing written
        self._raw = engine.cursor(lake)
        self._catalog = f"lake_{next(_numbers)}"
        schemas = " ".join(f"create schema {name};" for name in {"bronze", *SCHEMAS.values()} - {"main"})
        self._raw.execute(f"attach ':memory:' as {self._catalog}; use {self._catalog}; {schemas}")

    def sql(self, sql: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> duckdb.DuckDBPyRelation:
        """The rows of a query, as a relation: `.pl()`, `.to_arrow_table()`, `.df()`, `.fetchall()`, `.filter(...)`."""
        self._admit(sql)
        try:
            return self._raw.sql(sql) if params is None else self._raw.sql(sql, params=params)
        except duckdb.Error as error:
            raise refused(error) from error

    def execute(self, sql: str, params: Sequence[Any] | Mapping[str, Any] | None = None) -> Self:
        """Run statements; `$1` or `$name` stand for parameters. Fetch from the connection that comes back, this one."""
        self._admit(sql)
        try:
            self._raw.execute(sql) if params is None else self._raw.execute(sql, params)
        except duckdb.Error as error:
            raise refused(error) from error
        return self

    def register(self, name: str, data: Any) -> Self:
        """Give Arrow, Polars or pandas data a name in SQL. The lake's own names are taken."""
        if f"main.{name}" in {known.name for known in relations()}:
            raise NotAllowed(f"{name!r} is a table or view of the lake: give the data another name")
        self._raw.register(name, data)
        return self

    @property
    def opened(self) -> frozenset[str]:
        """The tables that have been read."""
        return frozenset(self._opened)

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._fetched(self._raw.fetchone)

    def fetchall(self) -> list[Any]:
        return self._fetched(self._raw.fetchall)

    def pl(self) -> pl.DataFrame:
        return self._fetched(self._raw.pl)

    def to_arrow_table(self) -> pa.Table:
        return self._fetched(self._raw.to_arrow_table)

    def df(self) -> Any:
        """A pandas data frame, where pandas is installed."""
        return self._fetched(self._raw.df)

    def close(self) -> None:
        with contextlib.suppress(duckdb.Error):  # closed before
            for snapshot in self._opened.values():
                if snapshot is not None:
                    snapshot.close()
            self._raw.execute(f"use memory; detach {self._catalog}")
        self._opened.clear()
        self._raw.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _fetched(self, fetch: Callable[[], T]) -> T:
        """What the last statement gave. QueryError where it gave no rows, Unreadable where reading on fails."""
        try:
            return fetch()
        except duckdb.Error as error:
            if "No open result set" in str(error):
                raise QueryError(NO_ROWS) from error
            raise refused(error) from error

    def _admit(self, sql: str) -> None:
        """Refuse what does more than read, and make what is named."""
        named = admitted(sql)
        if named.everything:
            self._make([known.name for known in relations()] + [f"bronze.{name}" for name in TABLES])
        self._open(self._make(named.relations))

    def _make(self, names: Iterable[str]) -> set[str]:
        """Create the views, over tables that are empty until they are opened; the tables behind the names.

        DuckDB binds a view when it is created, down to the tables: over empty ones that costs next to nothing, where each
        open table would be opened again for every view above it.
        """
        made, tables = behind(names)
        statements = [
            f"create view bronze.{name} as {_empty(TABLES[name])}"
            for name in sorted(tables)
            if f"bronze.{name}" not in self._made
        ]
        statements += [f"create view {known.quoted} as {known.sql}" for known in made if known.name not in self._made]
        if statements:
            try:
                self._raw.execute(";\n".join(statements))
            except duckdb.Error as error:
                raise QueryError(f"a view behind this query cannot be made: {error}") from error
            self._made |= {known.name for known in made} | {f"bronze.{name}" for name in tables}
        return tables

    def _open(self, tables: set[str]) -> None:
        """Open tables that are not open yet, and see that the others are at their newest version."""
        for name in sorted(tables):
            held = self._opened.get(name)
            if held is None and name in self._opened and not self._there(name):  # not written by anybody yet
                continue
            try:
                if held is not None:
                    held.refresh()
                    continue
                snapshot = self._snapshot(name)
                self._check_ours(name, snapshot)
                self._raw.execute(f"create or replace view bronze.{name} as {self._source(TABLES[name], snapshot)}")
            except duckdb.Error as error:
                raise self._unreadable(name, error) from error
            self._opened[name] = snapshot

    def _there(self, name: str) -> bool:
        """Whether the table has rows to read at the version that is asked for."""
        if name in self._pinned:
            return self._pinned[name] is not None
        if store.is_folder(self.lake):  # told without reading the table's log
            return store.is_there(store.uri(self.lake, name))
        return store.opened(self.lake, name) is not None

    def _snapshot(self, name: str) -> Snapshot | None:
        if not self._there(name):
            return None
        version = self._pinned.get(name)
        if version is not None:
            check_pins(self.lake, {name: version})
        return Snapshot(self._raw, f"{self._catalog}/{name}", store.uri(self.lake, name), version)

    def _check_ours(self, name: str, snapshot: Snapshot | None) -> None:
        """store.ForeignTable where another program's table lies there: its rows would be shown as NULLs."""
        if snapshot is None:
            return
        for column in TABLES[name].arrow:
            wanted, found = duckdb_type(column.type), snapshot.columns.get(column.name)
            if found != wanted and not (found is None and column.nullable):
                cause = (
                    f"its column {column.name!r} is {found}, not {wanted}"
                    if found
                    else f"it has no column {column.name!r}"
                )
                raise store.ForeignTable(name, store.uri(self.lake, name), cause)

    def _source(self, table: Table, snapshot: Snapshot | None) -> str:
        """The table's rows; columns that it got after it was written are NULL."""
        if snapshot is None:
            return _empty(table)
        columns = ", ".join(f"{shown(self._role, table, column)} as {column.name}" for column in table.arrow)
        return f"select {columns} from (from {snapshot.relation} union all by name {_empty(table)})"  # noqa: S608

    def _unreadable(self, name: str, error: duckdb.Error) -> Exception:
        version = self._pinned.get(name)
        if version is not None and "version" in str(error).lower():
            return UnknownPin(
                f"table {name!r} has no version {version} any more, or never had: {_first(error)}. "
                "`lakeloop tables` shows the newest; vacuum keeps those that a training set pinned"
            )
        return Unreadable(
            f"table {name!r} of {self.lake} cannot be read: {_first(error)}. If it is not one of Lakeloop's, move its folder "
            "away; if a file of it is damaged or gone, `lakeloop checks` says which, and older versions can be read by "
            f"`connect(pinned={{{name!r}: VERSION}})`"
        )


def _empty(table: Table) -> str:
    columns = ", ".join(f"null::{duckdb_type(column.type)} as {column.name}" for column in table.arrow)
    return f"select {columns} where false"


def _first(error: duckdb.Error) -> str:
    return str(error).strip().splitlines()[0]
