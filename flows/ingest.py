"""Ingest: sessions of applications outside become episodes in the lake."""

import asyncio
from collections import Counter
from typing import Annotated

from prefect import flow
from prefect.artifacts import acreate_table_artifact
from pydantic import BaseModel, Field

from tasks.events import tell
from tasks.ingest import find, read, reward_calls
from tasks.land import land
from tasks.showing import ashow

SHARD = 64  # sessions that are read and land together


class Ingested(BaseModel):
    """What came into the lake. `waiting` sessions have ended without a reward so far."""

    landed: int
    waiting: int
    rewarded_calls: int
    run_ids: list[str]
    statuses: dict[str, int]


@flow(name="ingest", log_prints=True)
async def ingest(patience_s: Annotated[float, Field(ge=0)] = 3600) -> Ingested:
    """Land what applications outside played through the gateway, each session once. Run it as often as you like.

    Args:
        patience_s: Seconds an ended session is waited for that has no reward yet; then it lands without one.
    """
    found = await find(patience_s)
    landed, runs, statuses = 0, set(), Counter()  # type: tuple[int, set[str], Counter[str]]
    for start in range(0, len(found.ready), SHARD):
        results = await read(found.ready[start : start + SHARD])
        landed += (await asyncio.to_thread(land, results)).episodes
        runs |= {result.episode.run_id for result in results}
        statuses.update(result.episode.status for result in results)
    rewarded = await asyncio.to_thread(reward_calls)
    await ashow(
        acreate_table_artifact,
        key="ingested",
        table=[{"status": status, "episodes": count} for status, count in sorted(statuses.items())],
        description=f"{landed} episodes landed, {found.waiting} sessions wait for a reward",
    )
    for run in sorted(runs):
        tell("run.landed", f"run.{run}", {"run_id": run}, purpose="external")
    return Ingested(
        landed=landed,
        waiting=found.waiting,
        rewarded_calls=rewarded,
        run_ids=sorted(runs),
        statuses=dict(statuses),
    )
