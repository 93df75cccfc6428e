"""Where a table lies, which version it has, and who may write it now."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deltalake import DeltaTable

from lakehouse.home import home
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
    path.parent.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + deadline_s
    with path.open("a") as held:
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise LakeBusy(
                        f"waited {deadline_s:.0f} s for another writer of table {table!r} to finish ({path}); "
                        "see which process holds it with `fuser`, or try again"
                    ) from None
                time.sleep(0.02)
        yield
