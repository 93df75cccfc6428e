"""Maintain: the lake stays quick to read, holds together, and keeps nothing longer than it may."""

from typing import Annotated

from prefect import flow
from pydantic import BaseModel, Field

from lakehouse.governance.vacuum import KEPT_DAYS
from tasks.land import shred_what_landed
from tasks.maintain import check, collect_checkpoints, compact, count, prune, prune_trees, retain, tell_mlflow, vacuum
from tasks.registry.collection import Policy


class Removed(BaseModel):
    """Checkpoints that went, or with a dry run that would go."""

    dry_run: bool
    runs: list[str]
    versions: list[str]
    bytes: int


@flow(name="maintain", log_prints=True)
def maintain(
    kept_days: Annotated[int, Field(ge=1)] = KEPT_DAYS,
    kept_versions: Annotated[int, Field(ge=1)] = 10,
    kept_checkpoint_days: Annotated[float, Field(ge=0)] = 7,
    dry_run: bool = False,
) -> Removed:
    """Merge the small files that landing leaves behind, end what is past its retention, remove files that nobody needs,
    make what has landed unreadable in the gateway's journal, prune that and the work trees, send MLflow what an outage kept
    from it, remove checkpoints that nothing refers to, and run the checks of the lake: one that fails fails the run.

    Other flows may write meanwhile. Versions that a training set pins stay readable, except for content past its retention.

    Args:
        kept_days: Days for which older versions of the tables can be read, pinned or not.
        kept_versions: Of each registered model the weights of so many of the newest versions stay; so do those that an alias
            names, their parents, and what is served or trained from: docs/registry.md.
        kept_checkpoint_days: Weights and resume points stay for so many days after they were written or asked for.
        dry_run: The plan: say what retention, vacuum and the collection of checkpoints would remove, and change nothing.
    """
    if not dry_run:
        shred_what_landed()
        prune()
        prune_trees()
        compact()
        tell_mlflow()
    retain(dry_run=dry_run)
    vacuum(kept_days=kept_days, dry_run=dry_run)
    kept = Policy(versions=kept_versions, days=kept_checkpoint_days)
    collected = collect_checkpoints(kept, dry_run=dry_run, return_state=True)  # MLflow away: the next time
    count()
    check()
    gone = collected.result() if collected.is_completed() else []
    return Removed(
        dry_run=dry_run,
        runs=[one.run.name for one in gone],
        versions=[version for one in gone for version in one.versions],
        bytes=sum(one.size for one in gone),
    )
