"""Maintain: the Prefect tasks that keep the lake in shape, and the journal and the store of work trees bounded."""

import asyncio

from httpx import HTTPError
from prefect import task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from lakehouse.governance import checks, statistics
from lakehouse.governance.retain import Expired
from lakehouse.governance.retain import retain as retain_content
from lakehouse.governance.vacuum import Vacuumed
from lakehouse.governance.vacuum import vacuum as vacuum_files
from lakehouse.home import home
from lakehouse.results import deployed
from lakehouse.write import Compacted, Writer
from sandboxes.backends.trees import TreeStore
from sandboxes.gateway.client import GatewayUnavailable
from tasks.acting import actor
from tasks.registry.collection import Checkpoint, Policy, collect, survey
from tasks.registry.versions import Registry
from tasks.retrying import infrastructure
from tasks.showing import show
from tasks.stack.gateway import gateway_client
from tasks.stack.settings import Settings
from tasks.training import outbox

KEPT_DAYS = 7  # what has landed stays in the gateway's journal for so long


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5, retry_condition_fn=infrastructure)
def compact() -> list[Compacted]:
    """Merge small files of every table; pinned versions stay readable."""
    done = Writer().compact()
    show(
        create_table_artifact,
        key="compaction",
        table=[{"table": d.table, "files before": d.files_before, "files after": d.files_after} for d in done],
        description="Files per table of the lake",
    )
    return done


class ChecksFailed(RuntimeError):
    """Something that must hold of the lake does not."""


@task(cache_policy=NO_CACHE)
def tell_mlflow() -> int:
    """Send what an outage kept from MLflow in training runs of this home; how many runs still wait."""
    waiting = outbox.left_over(home().runs)
    for work in waiting:
        try:
            outbox.send_left_over(work)
        except HTTPError as error:
            print(f"MLflow does not take what {work} kept: {error}")
    return len(outbox.left_over(home().runs)) if waiting else 0


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5, retry_condition_fn=infrastructure)
def retain(*, dry_run: bool) -> list[Expired]:
    """Empty content that is older than its rule, or say what would be emptied."""
    done = retain_content(None, dry_run=dry_run, actor=actor())
    table = [{"table": d.table, "episodes": d.episodes, "rows": d.rows, "old files removed": d.files} for d in done]
    show(create_table_artifact, key="retention", table=table, description="Content past its rule" + _would(dry_run))
    return done


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5, retry_condition_fn=infrastructure)
def vacuum(*, kept_days: int, dry_run: bool) -> list[Vacuumed]:
    """Remove files that no version needs which is young or pinned, or say which would be removed."""
    done = vacuum_files(None, kept_days=kept_days, dry_run=dry_run)
    table = [{"table": d.table, "files": d.files, "bytes": d.bytes, "pinned versions kept": d.pinned} for d in done]
    show(
        create_table_artifact, key="vacuum", table=table, description="Files of old versions removed" + _would(dry_run)
    )
    return done


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5, retry_condition_fn=infrastructure)
def collect_checkpoints(policy: Policy, *, dry_run: bool) -> list[Checkpoint]:
    """Remove weights and resume points that nothing refers to, or say which those are, and why the others stay."""
    look = survey if dry_run else collect
    found = look(Registry(Settings().mlflow_url), home().runs, policy, served=deployed(None))
    show(create_table_artifact,
        key="checkpoints",
        table=[
            {
                "run": one.run.name, "versions": ", ".join(one.versions), "MB": round(one.size / 1e6, 1),
                "stays": one.kept or "nothing refers to it",
            }
            for one in found
        ],
        description="Checkpoints of training runs" + (": what would go, and what stays" if dry_run else " that went"),
    )  # fmt: skip
    return [one for one in found if one.kept is None]


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5, retry_condition_fn=infrastructure)
def count() -> list[statistics.Size]:
    """Rows, files and bytes of every table, as a table."""
    sizes = statistics.sizes()
    table = [
        {
            "table": one.table, "rows": one.rows, "files": one.files, "MB": round(one.bytes / 1e6, 3),
            "MB with old versions": round(one.bytes_kept / 1e6, 3), "version": one.version,
        }
        for one in sizes
    ]  # fmt: skip
    show(create_table_artifact, key="statistics", table=table, description="Tables of the lake")
    return sizes


@task(cache_policy=NO_CACHE)
def check() -> None:
    """Run every check of the lake. ChecksFailed names those that fail."""
    results = checks.run()
    table = [{"check": one.name, "rows": one.rows, "passes": not one.failed, "about": one.about} for one in results]
    show(create_table_artifact, key="checks", table=table, description="What must hold of the lake")
    failed = [f"{one.name} ({one.about})" for one in results if one.failed]
    if failed:
        raise ChecksFailed(
            f"{len(failed)} checks of the lake fail: {'; '.join(failed)}. `lakeloop query 'from checks.NAME'` shows the rows"
        )


def _would(dry_run: bool) -> str:
    return ": what would go" if dry_run else ""


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5, retry_condition_fn=infrastructure)
def prune_trees() -> int:
    """Delete work trees that no episode has recorded for a month; how many."""
    gone = TreeStore().prune()
    print(f"work trees pruned: {gone.trees} trees, {gone.files} files, {gone.bytes / 1e6:.1f} MB")
    return gone.trees


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5, retry_condition_fn=infrastructure)
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
