"""The real part of `lakeloop bench async`, on a stack that is up: from a checkpoint to its first token, and bookkeeping.

Two checkpoints are trained on demonstrations, so that each release swaps weights that differ. The episodes whose bookkeeping is
timed are demonstrations as well: their calls are rendered and recorded like a policy's, but nobody samples them.
"""

import asyncio
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from benchmarks.load import Load, Talk, Target, drive
from benchmarks.report import middle, say
from flows.collect import collect
from flows.label import label
from flows.release import release
from flows.train import train
from lakehouse import connect
from tasks.release import register, serve
from tasks.serving import models
from tasks.stack import Settings

EASY = 0.35  # as the quickstart
SAMPLES = 8


def measure(settings: Settings, *, quick: bool) -> dict[str, Any]:
    """Everything that needs the stack."""
    return asyncio.run(_measure(settings, quick=quick))


async def _measure(settings: Settings, *, quick: bool) -> dict[str, Any]:
    base = await release(models.resolve(settings.model, settings.home), stage="base")
    say("demonstrations, and two checkpoints trained on them")
    shown = await collect(problems={"search": 32}, samples=1, max_difficulty=EASY, agent="expert", purpose="bench")
    await asyncio.to_thread(label, run_ids=[shown.run_id])
    folders = [
        (await train(objective="sft", run_ids=[shown.run_id], parent=base, epochs=1, seed=n)).folder for n in (0, 1)
    ]
    released = [await _released(settings, folders[n % 2], base, n) for n in range(2 if quick else 6)]
    return {**_middles(released), **await _bookkeeping(episodes=64 if quick else 1000, real=16 if quick else 64)}


async def _released(settings: Settings, folder: Path, parent: int, number: int) -> dict[str, float]:
    """Seconds from the trainer's finished folder on, as a step of the loop releases it."""
    target = Target(f"{settings.gateway_url}/v1", settings.model_name, settings.operator_key.read_text().strip())
    began = time.perf_counter()
    version = await asyncio.to_thread(
        register, folder, stage=f"bench-{time.time_ns()}", parent=parent, training_set_id=None, mlflow_run_id=None
    )
    registered = time.perf_counter()
    await asyncio.to_thread(serve, version)
    served = time.perf_counter()
    first: Load = await drive(target, Talk(8, stream=True), clients=1, calls=1, tag=f"release {number}")
    proof = _proof(version)
    first_ms = first.first_ms or first.latency_ms  # an answer without text ends after its first token
    return {
        "checkpoint_to_first_token_s": served - began + first_ms[0] / 1000,
        "register_s": registered - began,
        "deploy_s": served - registered,
        "held_s": proof["held_s"],
        "swap_s": proof["swap_s"],
    }


def _proof(version: int) -> dict[str, Any]:
    with connect() as connection:
        row = connection.execute(
            "select proof from deployments where version = $1 and accepted order by deployed_at desc limit 1", [version]
        ).fetchone()
    assert row is not None, f"version {version} was served and its deployment is not written down"
    found: dict[str, Any] = orjson.loads(row[0])
    return found


def _middles(rows: list[dict[str, float]]) -> dict[str, Any]:
    found = {name: round(middle([row[name] for row in rows]), 3) for name in rows[0]}
    return {"checkpoint_to_first_token_s": found.pop("checkpoint_to_first_token_s"), "release": found}


async def _bookkeeping(*, episodes: int, real: int) -> dict[str, Any]:
    """What `collect` and `label` take beside playing, per episode; and what that is of a real episode."""
    say(f"{real} episodes of the policy")
    asked = {"search": max(1, real // SAMPLES)}
    policy = await collect(problems=asked, samples=SAMPLES, max_difficulty=EASY, purpose="bench", seed=1)
    own = _intervals(policy.run_id)
    say(f"{episodes} demonstrations")
    began = time.perf_counter()
    done = await collect(
        problems={"search": episodes // SAMPLES}, samples=SAMPLES, agent="expert", purpose="bench", seed=2
    )
    collected = time.perf_counter()
    await asyncio.to_thread(label, run_ids=[done.run_id])
    labelled = time.perf_counter()
    played = _intervals(done.run_id)
    beside = {"collect": collected - began - _covered(played), "label": labelled - collected}
    each = sum(beside.values()) / len(played)
    lasting = sum((end - start).total_seconds() for start, end in own) / len(own)
    return {
        "orchestration_per_episode_ms": round(1000 * each, 1),
        "orchestration_ms": {name: round(1000 * seconds / len(played), 1) for name, seconds in beside.items()},
        "orchestration_share": round(each / lasting, 4),
        "orchestration_share_of_wall": round(each / (_covered(own) / len(own)), 4),
        "episodes": len(played),
        "episode_s": round(lasting, 2),
    }


def _intervals(run_id: str) -> list[tuple[datetime, datetime]]:
    with connect() as connection:
        return connection.execute(
            "select started_at, ended_at from episodes where run_id = $1 order by started_at", [run_id]
        ).fetchall()


def _covered(intervals: list[tuple[datetime, datetime]]) -> float:
    """Seconds in which at least one episode was being played. Intervals in order of their start."""
    seconds, until = 0.0, intervals[0][0]
    for start, end in intervals:
        seconds += max(0.0, (end - max(start, until)).total_seconds())
        until = max(until, end)
    return seconds
