"""Maintain: the lake stays quick to read, the gateway's journal bounded, and no box outlives its lease."""

from prefect import flow

from tasks.maintain import compact, prune, reap


@flow(name="maintain", log_prints=True)
def maintain() -> None:
    """Merge the small files that landing leaves behind, remove boxes past their lease, prune the gateway's journal.

    Pinned versions stay readable.
    """
    reap()
    prune()
    compact()
