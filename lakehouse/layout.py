"""How rows lie in files: what Parquet is told, per table, so that storing is cheap and an episode is found quickly.

Measured by `lakeloop bench lake`; docs/lake.md has the numbers behind each choice.
"""

from functools import cache
from typing import Any

import pyarrow as pa
from deltalake import BloomFilterProperties, ColumnProperties, WriterProperties

from lakehouse.schema import TABLES

TOKENS = ("calls", "training_rows")  # tables that are mostly lists of one value per token
GROUP_BYTES = 4 * 2**20  # of Arrow's memory: reading one episode unpacks a row group or two of `calls`
FEWEST, MOST = 64, 4096  # rows of a group: each costs a kilobyte of footer
FILE_BYTES = 16 * 2**20  # of those, as clustering makes them: DuckDB's cost of a look-up grows with a file's row groups
PLAIN_FILE_BYTES = 128 * 2**20  # of the other tables

# No dictionary: a prompt repeats the one before it, and Zstandard finds that in plain values but not in bit-packed
# indices of a dictionary. BYTE_STREAM_SPLIT makes log-probs 8 % smaller, but DuckDB reads it for floats only, and the Delta
# library has one setting for all items of lists: clustering, which has a writer of its own, uses it.
_PACKED = ColumnProperties(dictionary_enabled=False, encoding="PLAIN", statistics_enabled="NONE")
_FOUND_BY = ColumnProperties(
    dictionary_enabled=False,
    encoding="PLAIN",
    statistics_enabled="CHUNK",
    bloom_filter_properties=BloomFilterProperties(set_bloom_filter_enabled=True, fpp=0.01, ndv=128),
)
_PRUNED_BY = ColumnProperties(dictionary_enabled=False, encoding="PLAIN", statistics_enabled="CHUNK")


def properties(table: str, rows: pa.Table | None = None) -> WriterProperties:
    """What a writer of this table tells Parquet, for rows of such a size."""
    return _properties(table, rows_per_group(table, rows))


@cache
def _properties(table: str, group: int) -> WriterProperties:
    if table not in TOKENS:
        return WriterProperties(compression="ZSTD")
    spec = TABLES[table]
    columns = {
        field.name: _FOUND_BY
        if field.name == "episode_id"
        else _PRUNED_BY
        if pa.types.is_timestamp(field.type) or field.name in spec.key
        else _PACKED
        for field in spec.arrow
        if not pa.types.is_list(field.type)
    }
    return WriterProperties(
        compression="ZSTD",
        max_row_group_size=group,
        default_column_properties=_PACKED,
        column_properties=columns,
    )


def indexed(table: str) -> list[str]:
    """Columns whose least and greatest values Delta's log keeps, by which files are chosen: short ones, and never content."""
    spec = TABLES[table]
    return [
        f.name
        for f in spec.arrow
        if not pa.types.is_list(f.type)
        and f.name not in spec.partition_by
        and (f.name in (*spec.key, *spec.asked_by) or pa.types.is_timestamp(f.type))
        and spec.column(f.name).sensitivity != "content"
    ]


def file_bytes(table: str) -> int:
    """How large compaction makes files."""
    return FILE_BYTES if table in TOKENS else PLAIN_FILE_BYTES


def rows_per_group(table: str, rows: pa.Table | None = None) -> int:
    """Rows of a row group, the least that is unpacked at once: a power of two, so that few settings are made."""
    if table != "calls":
        return MOST if table not in TOKENS else 1024  # a training set is read as a whole
    if rows is None or rows.num_rows == 0:
        return FEWEST * 2
    wanted = GROUP_BYTES * int(rows.num_rows) // max(1, int(rows.nbytes))
    return min(MOST, max(FEWEST, 1 << max(0, wanted.bit_length() - 1)))


def arrow_options(table: str) -> dict[str, Any]:
    """The same for Arrow's own writer, which clustering uses: it can be told the encoding of each list's items."""
    if table not in TOKENS:
        return {"compression": "zstd"}
    spec = TABLES[table].arrow
    told = [f.name for f in spec if pa.types.is_timestamp(f.type) or f.name in TABLES[table].key]
    floats = [f.name for f in spec if pa.types.is_list(f.type) and pa.types.is_floating(f.type.value_type)]
    return {
        "compression": "zstd",
        "use_dictionary": False,
        "write_statistics": told,
        "column_encoding": {f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in floats},
    }


def clustered(table: str, data: pa.Table) -> pa.Table:
    """Rows that are asked for together lie together: children in the order of their episodes."""
    if data.num_rows < 2 or not TABLES[table].cluster_by:
        return data
    return data.sort_by([(name, "ascending") for name in TABLES[table].cluster_by])
