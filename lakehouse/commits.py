"""Commits to one table: made where it is missing, widened where it is older, tried again where another writer was first."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from lakehouse import layout, store
from lakehouse.schema import SCHEMA_VERSION, TABLES

T = TypeVar("T")

LANDING = (
    "land"  # the application id of every commit that looked before it wrote: two of them from one snapshot conflict
)
RETRIES = 20


def retried(lake: str, table: str, commit: Callable[[DeltaTable], T]) -> T:
    """Read the table and commit; where another writer was first, or an erasure took what was being read, look again."""
    for _ in range(RETRIES):
        try:
            return commit(opened(lake, table))
        except (CommitFailedError, store.Overtaken) as error:
            last = error
    raise CommitFailedError(f"table {table}: {RETRIES} commits in a row met another writer's: {last}")


def opened(lake: str, table: str) -> DeltaTable:
    """The table, with every column of this release. store.LakeError where what lies there is not it."""
    spec = TABLES[table]
    found = store.opened(lake, table)
    if found is not None:
        _widen(found, table)
        return found
    return DeltaTable.create(
        store.uri(lake, table),
        spec.arrow,
        mode="ignore",
        partition_by=list(spec.partition_by),
        name=spec.name,
        description=spec.grain,
        configuration={
            store.VERSION_KEY: str(SCHEMA_VERSION),
            "delta.dataSkippingStatsColumns": ",".join(layout.indexed(table)),
            **store.LOG_KEPT,
        },
        storage_options=store.options(lake),
        raise_if_key_not_exists=False,
    )


def write(delta: DeltaTable, table: str, data: pa.Table, transaction: Transaction | None) -> None:
    """Append rows, under an application transaction if one is given. More than a row group of them in the table's order."""
    if data.num_rows > layout.rows_per_group(table, data):
        data = layout.clustered(table, data)
    write_deltalake(
        delta,
        data,
        mode="append",
        writer_properties=layout.properties(table, data),
        commit_properties=CommitProperties(app_transactions=None if transaction is None else [transaction]),
    )


def next_landing(delta: DeltaTable) -> Transaction:
    return Transaction(LANDING, (delta.transaction_version(LANDING) or 0) + 1)


def append_new(
    lake: str, table: str, data: pa.Table, *, key: str | Sequence[str], among: Sequence[store.Condition] = ()
) -> tuple[int, int]:
    """Append the rows whose `key`, of one text column or several, is not there yet: (the table's version, rows written).

    `among`: which rows can have such a key, so that not all are read.
    """
    names = [key] if isinstance(key, str) else list(key)

    def joined(rows: pa.Table) -> pa.Array:
        return pc.binary_join_element_wise(*(rows[name] for name in names), "\0").combine_chunks()

    alike: list[store.Condition] = [(name, "in", pc.unique(data[name]).to_pylist()) for name in names]

    def commit(delta: DeltaTable) -> tuple[int, int]:
        there = store.read(lake, delta, names, [*among, *alike])
        fresh = data.filter(pc.invert(pc.is_in(joined(data), value_set=joined(there))))
        if fresh.num_rows:
            write(delta, table, fresh, next_landing(delta))
        return delta.version(), fresh.num_rows

    with store.exclusive(lake, table):
        return retried(lake, table, commit)


def _widen(delta: DeltaTable, table: str) -> None:
    """Add the columns that a table of an earlier release lacks. NewerLake where a later release wrote it."""
    there = {field.name for field in delta.schema().fields}
    missing = [column for column in TABLES[table].arrow if column.name not in there]
    version = store.schema_version(delta)
    if version > SCHEMA_VERSION or there - set(TABLES[table].arrow.names):
        raise store.NewerLake(table, version, sorted(there - set(TABLES[table].arrow.names)))
    if missing:
        delta.alter.add_columns(Schema.from_arrow(pa.schema(missing)).fields)
    if missing or version < SCHEMA_VERSION:
        delta.alter.set_table_properties({store.VERSION_KEY: str(SCHEMA_VERSION)}, raise_if_not_exists=False)
        delta.update_incremental()
