"""Maintain: the Prefect tasks that keep the lake in shape."""

from prefect import task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from lakehouse.write import Compacted, Writer


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
