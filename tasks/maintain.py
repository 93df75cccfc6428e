"""Maintain: the Prefect tasks that keep the lake in shape, and the journal and the store of work trees bounded."""

import asyncio

from prefect import task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from lakehouse.write import Compacted, Writer
from sandboxes.backends.trees import TreeStore
from sandboxes.gateway.client import GatewayUnavailable
from tasks.stack.gateway import gateway_client

KEPT_DAYS = 7  # what has landed stays in the gateway's journal for so long


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
def prune_trees() -> int:
    """Delete work trees that no episode has recorded for a month; how many."""
    gone = TreeStore().prune()
    print(f"work trees pruned: {gone.trees} trees, {gone.files} files, {gone.bytes / 1e6:.1f} MB")
    return gone.trees


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5)
def prune() -> int:
    """Delete from the gateway's journal what was sealed a week ago: it is in the lake. Returns how many calls."""
    try:
        sessions, calls = asyncio.run(_prune())
    except GatewayUnavailable as error:
        print(f"nothing pruned from the gateway's journal: {error}")
        return 0
    print(f"pruned from the gateway's journal: {calls} calls of {sessions} sessions")
    return calls


async def _prune() -> tuple[int, int]:
    async with gateway_client(timeout_s=600) as gateway:
        return await gateway.prune(sealed_for_s=KEPT_DAYS * 86_400)
