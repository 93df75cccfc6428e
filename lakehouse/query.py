"""DuckDB over the Delta tables, offline: one connection with a view per table and one per SQL file.

`bronze.<table>` is a table as written. `main` holds `sql/staging`, `sql/marts` and the tables that need no staging;
`sql/rubrics`, `sql/filters` and `sql/checks` each have a schema of their own. A view reads the newest version of its
tables unless `pinned` names another.
"""

import graphlib
import itertools
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import duckdb
import duckdb_extensions
import polars as pl

from lakehouse import store
from lakehouse.schema import TABLES, Table, duckdb_type

SQL = Path(__file__).parent / "sql"
_SCHEMAS = {"staging": "main", "marts": "main", "rubrics": "rubrics", "filters": "filters", "checks": "checks"}
_REFERENCE = re.compile(r"\b(?:from|join)\s+([a-z_]+(?:\.[a-z_]+)?)")
_starting = threading.Lock()
_numbers = itertools.count()


@dataclass(frozen=True)
class Relation:
    """One SQL file. `header` holds the `key: value` lines of its opening comment."""

    name: str  # qualified: "main.tokens", "rubrics.swe"
    sql: str
    header: Mapping[str, str]


def connect(lake: str | None = None, *, pinned: Mapping[str, int] | None = None) -> duckdb.DuckDBPyConnection:
    """A connection with every view of the lake, also of tables not yet written (empty, with their types).

    It reads only: nothing done here changes the lake. Close it when done. `pinned` fixes Delta versions by table name.
    """
    where = store.location(lake)
    with _starting:
        connection = _engine().cursor()
    catalog = f"lake_{next(_numbers)}"
    connection.execute(f"attach ':memory:' as {catalog}; use {catalog}; set timezone = 'UTC'; create schema bronze")
    for schema in sorted(set(_SCHEMAS.values()) - {"main"}):
        connection.execute(f"create schema {schema}")
    found = {**store.versions(where), **(pinned or {})}
    for table in TABLES.values():
        version = (pinned or {}).get(table.name)
        source = _empty(table) if table.name not in found else _scan(where, table, version)
        connection.execute(f"create view bronze.{table.name} as {source}")
    for relation in relations():
        connection.execute(f"create view {relation.name} as {relation.sql}")
    return connection


class QueryError(ValueError):
    """DuckDB refused the SQL; the message is its own."""


def query(sql: str, lake: str | None = None) -> pl.DataFrame:
    """The rows of one query over the lake. QueryError where the SQL is wrong."""
    with connect(lake) as connection:
        try:
            return connection.sql(sql).pl()
        except duckdb.Error as error:
            raise QueryError(f"{error}\n`lakeloop tables` lists what there is.") from error


@cache
def relations() -> tuple[Relation, ...]:
    """Every relation above the bronze tables, each after the ones it reads."""
    found = {
        f"{schema}.{path.stem}": path.read_text()
        for part, schema in _SCHEMAS.items()
        for path in sorted((SQL / part).glob("*.sql"))
    }
    for name in TABLES:  # a table that needs no staging is shown as it is
        found.setdefault(f"main.{name}", f"from bronze.{name}")
    order = graphlib.TopologicalSorter({name: _reads(name, sql) & found.keys() for name, sql in found.items()})
    return tuple(
        Relation(name, found[name].rstrip().rstrip(";"), _header(found[name])) for name in order.static_order()
    )


def relation(name: str) -> Relation:
    """One relation by its qualified name. KeyError names those of its schema."""
    for candidate in relations():
        if candidate.name == name:
            return candidate
    schema = name.split(".")[0]
    there = ", ".join(r.name for r in relations() if r.name.startswith(f"{schema}."))
    raise KeyError(f"no relation {name!r}; there are {there}")


@cache
def _engine() -> duckdb.DuckDBPyConnection:
    """One DuckDB per process: loading the Delta extension checks its signature, which takes most of a second."""
    engine = duckdb.connect()
    duckdb_extensions.import_extension("delta", con=engine)
    engine.execute("load delta")
    return engine


def _scan(lake: str, table: Table, version: int | None) -> str:
    """The table's rows; columns that it got after it was written are NULL."""
    where = store.uri(lake, table.name).replace("'", "''")
    pin = "" if version is None else f", version = {version}"
    return f"from delta_scan('{where}'{pin}) union all by name {_empty(table)}"


def _empty(table: Table) -> str:
    columns = ", ".join(f"null::{duckdb_type(column.type)} as {column.name}" for column in table.arrow)
    return f"select {columns} where false"


def _header(sql: str) -> dict[str, str]:
    """`-- key: value` lines at the top of a file."""
    lines = itertools.takewhile(lambda line: line.startswith("--"), sql.splitlines())
    pairs = (line[2:].split(":", 1) for line in lines if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _reads(name: str, sql: str) -> set[str]:
    """The relations a file names after FROM or JOIN, qualified, without itself (an import CTE may bear its name)."""
    code = "\n".join(line.split("--")[0] for line in sql.lower().splitlines())
    named = (found if "." in found else f"main.{found}" for found in _REFERENCE.findall(code))
    return set(named) - {name}
