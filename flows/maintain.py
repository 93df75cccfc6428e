"""Maintain: the lake stays quick to read, and no box outlives its lease."""

from prefect import flow

from tasks.maintain import compact, reap


@flow(name="maintain", log_prints=True)
def maintain() -> None:
    """Merge the small files that landing leaves behind, and remove boxes past their lease. Pinned versions stay readable."""
    reap()
    compact()
