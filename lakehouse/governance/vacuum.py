"""Vacuum: files that no version needs any more. Needed are the newest version, young ones, and what a training set pins."""

from dataclasses import dataclass

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from lakehouse import store
from lakehouse.governance.files import Files
from lakehouse.query import connect
from lakehouse.records import TrainingSet
from lakehouse.schema import TABLES

KEPT_DAYS = 7


@dataclass(frozen=True)
class Vacuumed:
    """`files` and `bytes` removed, or with a dry run to be removed; `pinned` versions were kept whole."""

    table: str
    files: int
    bytes: int
    pinned: int


def vacuum(lake: str | None = None, *, kept_days: int = KEPT_DAYS, dry_run: bool = False) -> list[Vacuumed]:
    """Remove the files of versions older than `kept_days`, and what killed writers left, from every table.

    Readers of an older version that is not pinned fail from then on. ValueError for less than a day: that would take files
    from under running queries.
    """
    if kept_days < 1:
        raise ValueError(f"versions are kept for a day at least, not {kept_days}: queries that run may read them")
    where = store.location(lake)
    wanted = pinned(where)
    done = []
    for table in TABLES:
        with store.exclusive(where, table):
            delta = store.opened(where, table)
            if delta is not None:
                done.append(_vacuum(where, table, delta, wanted.get(table, set()), kept_days, dry_run))
    return done


def pinned(lake: str | None = None) -> dict[str, set[int]]:
    """The versions of each table that some training set was selected from."""
    found: dict[str, set[int]] = {}
    with connect(lake) as connection:
        rows = connection.execute("from training_sets").pl().to_dicts()
    for row in rows:
        for table, version in TrainingSet(**row).pinned_versions.items():
            found.setdefault(table, set()).add(version)
    return found


def _vacuum(lake: str, table: str, delta: DeltaTable, wanted: set[int], kept_days: int, dry_run: bool) -> Vacuumed:
    held = delta.metadata().configuration
    if not dry_run and any(held.get(name) != value for name, value in store.LOG_KEPT.items()):  # of an earlier release
        delta.alter.set_table_properties(store.LOG_KEPT, raise_if_not_exists=False)
        delta.update_incremental()
    kept = sorted(version for version in wanted if version <= delta.version() and _known(lake, delta, version))
    files = Files(lake, delta)
    sizes = files.sizes()
    asked = {
        "retention_hours": 24 * kept_days,
        "enforce_retention_duration": False,
        "full": True,
        "keep_versions": kept,
    }
    gone = delta.vacuum(dry_run=True, **asked)  # type: ignore[arg-type]
    if gone and not dry_run:
        delta.vacuum(dry_run=False, **asked)  # type: ignore[arg-type]
    return Vacuumed(table, len(gone), sum(sizes.get(path, 0) for path in gone), len(kept))


def _known(lake: str, delta: DeltaTable, version: int) -> bool:
    """Whether the log can still tell what the version was made of."""
    try:
        store.settled(lambda: DeltaTable(delta.table_uri, version=version, storage_options=store.options(lake)))
    except DeltaError:
        return False
    return True
