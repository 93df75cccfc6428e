"""Land: the Prefect task that writes a shard's episodes to the lake, each exactly once."""

from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from lakehouse.write import Landed, Writer
from sandboxes.episode import Result


@task(cache_policy=NO_CACHE, retries=3, retry_delay_seconds=2)
def land(results: Sequence[Result]) -> Landed:
    """Write episodes with their calls, actions and evidence. Episodes that landed before are skipped."""
    return Writer().land(
        [result.episode for result in results],
        [call for result in results for call in result.calls],
        [action for result in results for action in result.actions],
        [evidence for result in results for evidence in result.evidence],
    )
