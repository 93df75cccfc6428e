"""Roll out: the Prefect tasks that plan a run and play a shard of its episodes."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run

from lakehouse.collecting import remaining
from lakehouse.planning import choose
from lakehouse.records import Dispatch, Mode, Problem, Split, digest, episode_id, group_id, now
from lakehouse.write import Writer
from sandboxes import backends
from sandboxes.agents import Sampling
from sandboxes.episode import Result, run_episode
from sandboxes.gateway.client import GatewayClient
from sandboxes.problems.library import load, prepare
from tasks.progress import Progress
from tasks.serving.engine import Engine
from tasks.stack.gateway import gateway_client
from tasks.stack.settings import Settings


@dataclass(frozen=True)
class Draw:
    """What a run is to consist of."""

    run_id: str
    problems: Mapping[str, int]  # per kind
    split: Split
    samples: int
    agent: str  # "policy": each kind's own agent; else an agent's name
    purpose: str
    seed: int
    max_difficulty: float

    @property
    def mode(self) -> Mode:
        return "demonstration" if self.agent == "expert" else "policy"


@dataclass(frozen=True)
class Play:
    """How episodes are played."""

    sampling: Sampling
    backend: str
    concurrency: int
    deadline_s: float


@task(cache_policy=NO_CACHE)
async def load_problems(kinds: Sequence[str]) -> int:
    """Put the shipped problems of these kinds into the lake, each edition once; how many are new or changed."""
    writer = Writer()
    new = 0
    for kind in kinds:
        problems = await asyncio.to_thread(load, kind)
        new += writer.put_problems(problems).rows
    return new


@task(cache_policy=NO_CACHE)
def dispatch(draw: Draw) -> tuple[list[Dispatch], dict[str, Problem]]:
    """Write down the intent to run every episode of the draw, and return those that have not landed with their problems.

    Repeating a run id is how an interrupted run is continued: the same draw gives the same episodes. Where a problem has
    a new edition since, its episodes are played anew: those of two editions are no group.
    """
    problems = choose(None, draw.problems, split=draw.split, seed=draw.seed, max_difficulty=draw.max_difficulty)
    intents = [
        Dispatch(
            episode_id=episode_id(draw.run_id, problem.problem_id, sample, problem.edition),
            run_id=draw.run_id,
            group_id=group_id(draw.run_id, problem.problem_id, problem.edition),
            problem_id=problem.problem_id,
            sample_index=sample,
            agent=problem.kind if draw.agent == "policy" else draw.agent,
            mode=draw.mode,
            purpose=draw.purpose,
            created_at=now(),
        )
        for problem in problems
        for sample in range(draw.samples)
    ]
    intended = {intent.episode_id for intent in intents}
    Writer().append_new("dispatches", intents, key="episode_id")
    todo = [left for left in remaining(None, draw.run_id) if left.episode_id in intended]
    return todo, {problem.problem_id: problem for problem in problems}


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5)
def fetch(problems: Sequence[Problem]) -> None:
    """Fetch the sources these problems need, once per machine."""
    prepare(problems)


@task(cache_policy=NO_CACHE, retries=1, retry_delay_seconds=2)
async def roll_out(
    shard: Sequence[Dispatch], problems: Mapping[str, Problem], play: Play, progress: Progress
) -> list[Result]:
    """Play a shard of episodes, `play.concurrency` at a time. What an episode meets becomes its status, not an exception."""
    settings = Settings()
    backend = await asyncio.to_thread(backends.choose, play.backend)
    with Engine(settings.engine) as engine:
        version = await asyncio.to_thread(engine.served_version)
    places = asyncio.Semaphore(play.concurrency)

    async def one(intent: Dispatch, gateway: GatewayClient) -> Result:
        async with places:
            result = await run_episode(
                intent,
                problems[intent.problem_id],
                gateway=gateway,
                backend=backend,
                sampling=play.sampling,
                deadline_s=play.deadline_s,
                model_name=settings.model_name,
                model_version=version,
            )
        await progress.advance()
        return result

    async with gateway_client() as gateway, asyncio.TaskGroup() as group:
        running = [group.create_task(one(intent, gateway)) for intent in shard]
    return [episode.result() for episode in running]


def shards(dispatches: Sequence[Dispatch], size: int) -> list[list[Dispatch]]:
    """Dispatches in shards of at most `size`, in their order, which has a group's samples one after the other."""
    return [list(dispatches[start : start + size]) for start in range(0, len(dispatches), size)]


def own_run_id() -> str:
    """A run id derived from the Prefect flow run: when that is retried, it finds what it landed before."""
    return "run-" + digest(str(flow_run.id or uuid4()))[:12]
