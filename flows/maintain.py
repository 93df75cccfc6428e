"""Maintain: the lake stays quick to read, and what grows beside it stays bounded."""

from prefect import flow

from tasks.maintain import compact, prune, prune_trees


@flow(name="maintain", log_prints=True)
def maintain() -> None:
    """Merge the small files that landing leaves behind, prune the gateway's journal and the store of work trees.

    Pinned versions stay readable.
    """
    prune()
    prune_trees()
    compact()
