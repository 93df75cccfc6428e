"""Maintain: the lake stays quick to read."""

from prefect import flow

from tasks.maintain import compact


@flow(name="maintain", log_prints=True)
def maintain() -> None:
    """Merge the small files that landing leaves behind. Pinned versions stay readable."""
    compact()
