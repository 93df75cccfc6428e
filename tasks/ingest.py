"""Ingest: the Prefect tasks that find outside applications' sessions and read them as episodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from lakehouse import ingesting
from lakehouse.records import now
from sandboxes.episode import Result
from sandboxes.external import episode_of, receive
from tasks.retrying import infrastructure
from tasks.stack.gateway import gateway_client
from tasks.stack.settings import Settings


@dataclass(frozen=True)
class Found:
    """Sessions whose episodes are not in the lake; `waiting` more ended a moment ago and have no reward yet."""

    ready: list[dict[str, Any]]
    waiting: int


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5, retry_condition_fn=infrastructure)
async def find(patience_s: float) -> Found:
    """Sessions that are over, that no flow started, and that have a reward or have waited for one for `patience_s`."""
    async with gateway_client() as gateway:
        closed = await gateway.closed_sessions()
    fresh = ingesting.missing(None, {episode_of(session): session["task_id"] for session in closed})
    found = [session for session in closed if episode_of(session) in fresh]
    late = now() - timedelta(seconds=patience_s)
    ready = [
        one for one in found if one["rewards"] or one["sealed_at"] or datetime.fromisoformat(one["ended_at"]) <= late
    ]
    return Found(ready, len(found) - len(ready))


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5, retry_condition_fn=infrastructure)
async def read(sessions: Sequence[dict[str, Any]]) -> list[Result]:
    """Seal these sessions and read them as episodes."""
    known = ingesting.problems(None, [session["task_id"] for session in sessions])
    model_name = Settings().model_name
    async with gateway_client() as gateway:
        return [
            await receive(gateway, session, known.get(session["task_id"]), model_name=model_name)
            for session in sessions
        ]


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5, retry_condition_fn=infrastructure)
def reward_calls() -> int:
    """Write down what applications gave single calls; how many judgements are new."""
    return ingesting.reward_calls(None)
