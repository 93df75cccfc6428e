"""Reap: the Prefect task that frees this machine of what killed runs left."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from sandboxes import backends
from tasks.retrying import infrastructure


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5, retry_condition_fn=infrastructure)
def reap_boxes() -> dict[str, int]:
    """Remove boxes past their lease from this machine; how many of each backend."""
    removed = backends.reap()
    print(f"boxes past their lease removed: {removed or 'no backend here'}")
    return removed
