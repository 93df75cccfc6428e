"""Land: the Prefect task that writes a shard's episodes to the lake, each exactly once."""

import asyncio
from collections.abc import Sequence, Set
from datetime import datetime, timedelta

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger

from lakehouse import ingesting
from lakehouse.privacy import pieces
from lakehouse.records import now
from lakehouse.write import DuplicateEpisode, Landed, Writer
from sandboxes.episode import Result
from sandboxes.external import episode_of
from sandboxes.gateway.client import GatewayRefused, GatewayUnavailable
from tasks.retrying import infrastructure
from tasks.serving import models
from tasks.stack.gateway import gateway_client
from tasks.stack.settings import Settings

KEPT_DAYS = 7  # so long somebody can still find out why an episode is in quarantine, or never landed


@task(cache_policy=NO_CACHE, retries=3, retry_delay_seconds=2, retry_condition_fn=infrastructure)
def land(results: Sequence[Result]) -> Landed:
    """Write episodes with their calls, actions and evidence; then nobody can read their gateway sessions any more.

    Episodes that landed before are skipped. Sessions of episodes that went to quarantine stay as they are.
    """
    return put(results)


def put(results: Sequence[Result]) -> Landed:
    """`land` within another task."""
    _keep_tokenizer()
    try:
        landed = Writer().land(
            [result.episode for result in results],
            [call for result in results for call in result.calls],
            [action for result in results for action in result.actions],
            [evidence for result in results for evidence in result.evidence],
        )
    except DuplicateEpisode as twice:  # the rest has landed
        _close(results, {*twice.landed.quarantined, *twice.episode_ids})
        raise
    _close(results, set(landed.quarantined))
    return landed


def _close(results: Sequence[Result], refused: Set[str]) -> None:
    """Nobody can read the sessions of what has landed any more."""
    written = [result.episode for result in results if result.episode.episode_id not in refused]
    try:
        asyncio.run(_shred([episode.session_id for episode in written if episode.session_id]))
    except (GatewayUnavailable, GatewayRefused) as error:
        # The rows are safe; `maintain` does this again.
        get_run_logger().warning(
            "the episodes have landed, but not all of their sessions could be made unreadable: %s", error
        )


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5, retry_condition_fn=infrastructure)
def shred_what_landed() -> int:
    """Make sessions unreadable whose episode has landed; after a week also those whose episode was refused or never came.

    Landing does it; this is for what landed while the gateway did not answer, for what is in quarantine, and for attempts of
    our own that were killed or replaced. Outside applications' sessions wait until they are ingested. Returns how many.
    """
    try:
        count = asyncio.run(_shred_closed())
    except GatewayUnavailable as error:
        print(f"no sessions shredded: {error}")
        return 0
    print(f"sessions that could still be read and need not be: {count}, now shredded")
    return count


async def _shred_closed() -> int:
    async with gateway_client(timeout_s=600) as gateway:
        closed = await gateway.closed_sessions()
        # A flow's session has its episode's id as its task; an outside application's is named after the session.
        names = {one["session_id"]: {one["task_id"], episode_of(one)} for one in closed}
        done, kept = ingesting.settled(None, set().union(*names.values()))
        long_ago = now() - timedelta(days=KEPT_DAYS)
        over = [
            one["session_id"]
            for one in closed
            if names[one["session_id"]] & done
            or (names[one["session_id"]] & kept and datetime.fromisoformat(one["ended_at"]) < long_ago)
        ]
        return await gateway.shred_sessions(over)


async def _shred(session_ids: Sequence[str]) -> None:
    if not session_ids:
        return
    async with gateway_client() as gateway:
        await gateway.shred_sessions(session_ids)


def _keep_tokenizer() -> None:
    """What is landed may have to be masked, token by token. Without it nothing that must be masked gets in."""
    settings = Settings()
    folder = models.local(settings.model, settings.home)
    if folder is not None:
        pieces.keep(settings.model_name, folder)
