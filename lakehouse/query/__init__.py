"""DuckDB over the Delta tables, offline and read-only: every table and every SQL file is a view, opened when it is named."""

from collections.abc import Mapping

import duckdb
import polars as pl

from lakehouse import store
from lakehouse.query.connection import Connection
from lakehouse.query.errors import NO_ROWS, NotAllowed, QueryError, UnknownPin, Unreadable, refused
from lakehouse.query.relations import SQL, Relation, relation, relations
from lakehouse.query.roles import UnknownRole, known
from lakehouse.records import TrainingSet

__all__ = [
    "SQL",
    "Connection",
    "NotAllowed",
    "QueryError",
    "Relation",
    "UnknownPin",
    "UnknownRole",
    "Unreadable",
    "connect",
    "query",
    "relation",
    "relations",
]


def connect(
    lake: str | None = None,
    *,
    pinned: Mapping[str, int | None] | None = None,
    training_set: str | None = None,
    role: str | None = None,
) -> Connection:
    """A connection with every view of the lake, also of tables not yet written (empty, with their types).

    It reads only, and a table is opened when a query first names it: at its newest version, or at the Delta version that
    `pinned` gives for its name (None: as before its first write). `training_set` pins what that set was selected from, as
    it was then. `role` hides the columns that the role may not see. Close it when done.

    KeyError for a pin of no table, UnknownPin for a version or training set that is not there, UnknownRole.
    """
    where = store.location(lake)
    pins = _pins_of(where, training_set) | dict(pinned or {})
    for name, version in pins.items():
        store.uri(where, name)
        if version is not None and (isinstance(version, bool) or not isinstance(version, int) or version < 0):
            raise UnknownPin(f"pinned[{name!r}] is {version!r}: a Delta version is a whole number from 0 on")
    return Connection(where, pins, known(role))


def query(sql: str, lake: str | None = None) -> pl.DataFrame:
    """The rows of one query over the lake. QueryError where the SQL is wrong or does more than read."""
    with connect(lake) as connection:
        found = connection.sql(sql)
        if found is None:
            raise QueryError(NO_ROWS)
        try:
            return found.pl()
        except duckdb.Error as error:
            raise refused(error) from error


def _pins_of(lake: str, training_set: str | None) -> dict[str, int | None]:
    if training_set is None:
        return {}
    with Connection(lake, {}, None) as connection:
        found = connection.execute("from training_sets where training_set_id = $1", [training_set]).pl()
    if found.is_empty():
        raise UnknownPin(
            f"no training set {training_set!r} in this lake: `lakeloop query 'from training_sets'` lists them"
        )
    return dict(TrainingSet(**found.row(0, named=True)).pinned_versions)
