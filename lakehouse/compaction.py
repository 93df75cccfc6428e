"""Compaction: many small files become few. `compact` is for `maintain`; `tend` is what writers do of it as they go.

Every commit leaves a file and an entry in Delta's log, and whoever opens a table pays for each. A loop that lands a group at a
time makes thousands of them between two runs of `maintain`, so each `EVERY`th commit of a table tidies up after the others.
"""

import logging
from dataclasses import dataclass

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from lakehouse import clustering, layout, store
from lakehouse.quarantine import CHILDREN
from lakehouse.schema import TABLES
from lakehouse.store import LakeError, Overtaken

EVERY = 16  # commits
log = logging.getLogger("lakehouse")


@dataclass(frozen=True)
class Compacted:
    """What compaction did to one table."""

    table: str
    files_before: int
    files_after: int
    version: int


def compact(lake: str, table: str) -> Compacted | None:
    """Rewrite small files into larger ones; None where the table has not been written.

    Old files stay, so pinned versions can still be read. Tables of an episode's rows are clustered besides
    (`clustering.py`), while landing goes on.
    """
    delta = store.opened(lake, table)
    if delta is None:
        return None
    before = len(delta.file_uris())
    if _clustered(delta, table):
        while clustering.cluster(lake, table):
            pass
    else:
        _packed(lake, table, delta)
    delta.update_incremental()
    delta.create_checkpoint()  # whoever opens the table reads this instead of every commit so far
    return Compacted(table, before, len(delta.file_uris()), delta.version())


def tend(lake: str, table: str, version: int) -> None:
    """After a commit that made `version`: merge what `EVERY` commits left behind, if this is the last of them.

    What was committed stays committed: where another writer or a damaged file is in the way, the next turn or `maintain` does it.
    """
    if version % EVERY:
        return
    try:
        delta = store.opened(lake, table)
        if delta is None:
            return
        if _clustered(delta, table):
            clustering.cluster(lake, table, only_small=True)
        elif _spare(delta) >= EVERY // 2:
            _packed(lake, table, delta)
        delta.update_incremental()
        delta.create_checkpoint()
    except (Overtaken, LakeError, TimeoutError, DeltaError, OSError) as error:
        log.info("the small files of table %s stay for now: %s", table, error)


def tend_landed(lake: str, version: int) -> None:
    """`tend` for every table that a landing writes to, after one that made this version of `episodes`."""
    for table in ("episodes", *CHILDREN, "redactions", "quarantine"):
        tend(lake, table, version)


def _clustered(delta: DeltaTable, table: str) -> bool:
    """Whether its files are merged in the order of episodes; not where an earlier release partitioned it."""
    return bool(TABLES[table].cluster_by) and not delta.metadata().partition_columns


def _spare(delta: DeltaTable) -> int:
    """How many files there are beyond one for each partition."""
    files = delta.file_uris()
    return len(files) - len({path.rpartition("/")[0] for path in files})


def _packed(lake: str, table: str, delta: DeltaTable) -> None:
    with store.exclusive(lake, table):
        delta.update_incremental()
        delta.optimize.compact(target_size=layout.file_bytes(table), writer_properties=layout.properties(table))
