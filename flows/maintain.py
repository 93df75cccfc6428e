"""Maintain: the lake stays quick to read, holds together, and keeps nothing longer than it may."""

from typing import Annotated

from prefect import flow
from pydantic import Field

from lakehouse.governance.vacuum import KEPT_DAYS
from tasks.maintain import check, compact, count, prune, prune_trees, retain, tell_mlflow, vacuum


@flow(name="maintain", log_prints=True)
def maintain(kept_days: Annotated[int, Field(ge=1)] = KEPT_DAYS, dry_run: bool = False) -> None:
    """Merge the small files that landing leaves behind, end what is past its retention, remove files that nobody needs,
    prune the gateway's journal and the work trees, send MLflow what an outage kept from it, and run the checks of the lake:
    one that fails fails the run.

    Other flows may write meanwhile. Versions that a training set pins stay readable, except for content past its retention.

    Args:
        kept_days: Days for which older versions of the tables can be read, pinned or not.
        dry_run: Say what retention and vacuum would remove, and change nothing.
    """
    if not dry_run:
        prune()
        prune_trees()
        compact()
        tell_mlflow()
    retain(dry_run=dry_run)
    vacuum(kept_days=kept_days, dry_run=dry_run)
    count()
    check()
