"""How much there is: rows, files and bytes of every table, now and in all versions that are kept."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakehouse import store
from lakehouse.governance.files import Files
from lakehouse.schema import TABLES


@dataclass(frozen=True)
class Size:
    """Of one table: its newest version, and what lies in its folder, older versions and the log among it."""

    table: str
    version: int
    rows: int
    files: int
    bytes: int
    files_kept: int
    bytes_kept: int


def sizes(lake: str | None = None) -> list[Size]:
    """Every table that has been written. Rows are counted by the log, without reading data."""
    where = store.location(lake)
    found = []
    for table in TABLES:
        delta = store.opened(where, table)
        if delta is not None:
            told = pa.table(delta.get_add_actions(flatten=True))
            kept = Files(where, delta).sizes()
            found.append(
                Size(
                    table,
                    delta.version(),
                    int(pc.sum(told["num_records"]).as_py() or 0),
                    told.num_rows,
                    int(pc.sum(told["size_bytes"]).as_py() or 0),
                    len(kept),
                    sum(kept.values()),
                )
            )
    return found
