"""Maintain: the Prefect tasks that keep the lake in shape and the machine free of what killed runs left."""

from prefect import task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from lakehouse.write import Compacted, Writer
from sandboxes import backends


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5)
def compact() -> list[Compacted]:
    """Merge small files of every table; pinned versions stay readable."""
    done = Writer().compact()
    create_table_artifact(
        key="compaction",
        table=[{"table": d.table, "files before": d.files_before, "files after": d.files_after} for d in done],
        description="Files per table of the lake",
    )
    return done


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5)
def reap() -> dict[str, int]:
    """Remove boxes past their lease from this machine; how many of each backend."""
    removed = backends.reap()
    print(f"boxes past their lease removed: {removed or 'no backend here'}")
    return removed
