"""Land: the Prefect task that writes a shard's episodes to the lake, each exactly once."""

import asyncio
from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger

from lakehouse.write import Landed, Writer
from sandboxes.episode import Result
from sandboxes.gateway.client import GatewayRefused, GatewayUnavailable
from tasks.stack.gateway import gateway_client


@task(cache_policy=NO_CACHE, retries=3, retry_delay_seconds=2)
def land(results: Sequence[Result]) -> Landed:
    """Write episodes with their calls, actions and evidence; then their gateway sessions are sealed.

    Episodes that landed before are skipped.
    """
    landed = Writer().land(
        [result.episode for result in results],
        [call for result in results for call in result.calls],
        [action for result in results for action in result.actions],
        [evidence for result in results for evidence in result.evidence],
    )
    try:
        asyncio.run(_seal([result.episode.session_id for result in results if result.episode.session_id]))
    except (GatewayUnavailable, GatewayRefused) as error:
        # The rows are safe; an unsealed session only takes room in the gateway's journal for longer.
        get_run_logger().warning("the episodes have landed, but not all of their sessions could be sealed: %s", error)
    return landed


async def _seal(session_ids: Sequence[str]) -> None:
    if not session_ids:
        return
    async with gateway_client() as gateway:
        await gateway.seal_sessions(session_ids)
