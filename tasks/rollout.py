"""Roll out: the Prefect tasks that plan a run and play a shard of its episodes."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run

from lakehouse.collecting import remaining, told_by
from lakehouse.erased import erased_among
from lakehouse.planning import choose
from lakehouse.records import Dispatch, Mode, Problem, Split, digest, episode_id, group_id, now
from lakehouse.store import location
from lakehouse.write import Writer
from sandboxes import backends
from sandboxes.agents import CommandAgent, DefinitionError, find
from sandboxes.episode import Result
from sandboxes.problems.library import load, prepare
from sandboxes.programs import check
from sandboxes.prompts import PromptError, Prompts
from tasks.progress import Progress
from tasks.retrying import infrastructure
from tasks.stack.settings import Settings
from tasks.stage import Play, set_up

PROBLEMS = {"search": 16, "swe": 4}  # how many of each kind, unless told otherwise


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


def cast(agent: str, problems: Mapping[str, int] | None) -> tuple[str, dict[str, int]]:
    """The name that an agent's episodes carry, and how many problems of each kind. DefinitionError for kinds that it cannot do."""
    if agent == "policy":
        return agent, dict(problems or PROBLEMS)
    actor = find(agent)
    if not isinstance(actor, CommandAgent):
        return actor.name, dict(problems or PROBLEMS)
    wanted = dict(problems or {kind: PROBLEMS.get(kind, 4) for kind in actor.kinds})
    others = {name for name in wanted if name.partition("/")[0] not in actor.kinds}  # search/debian is a set of a kind
    if others:
        can = ", ".join(actor.kinds)
        raise DefinitionError(f"agent {actor.name} works on problems of the kind {can} and not {min(others)}")
    return actor.name, wanted


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
async def load_problems(kinds: Sequence[str]) -> int:
    """Put the shipped problems of these kinds into the lake, each edition once; how many are new or changed."""
    writer = Writer()
    new = 0
    for kind in kinds:
        problems = await asyncio.to_thread(load, kind)
        new += writer.put_problems(problems).rows
    return new


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
def dispatch(draw: Draw) -> tuple[list[Dispatch], dict[str, Problem]]:
    """Write down the intent to run every episode of the draw, and return those that have not landed with their problems.

    Repeating a run id is how an interrupted run is continued: the same draw gives the same episodes. Where a problem has
    a new edition since, its episodes are played anew: those of two editions are no group.
    """
    problems = choose(None, draw.problems, split=draw.split, seed=draw.seed, max_difficulty=draw.max_difficulty)
    intents = intended(draw, problems)
    names = {intent.episode_id for intent in intents}
    write_down(intents)
    todo = [left for left in remaining(None, draw.run_id) if left.episode_id in names]
    return todo, {problem.problem_id: problem for problem in problems}


def intended(draw: Draw, problems: Sequence[Problem], loop_id: str | None = None) -> list[Dispatch]:
    """The episodes of a draw that took these problems."""
    return [
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
            loop_id=loop_id,
        )
        for problem in problems
        for sample in range(draw.samples)
    ]


def write_down(intents: Sequence[Dispatch]) -> None:
    """Dispatch episodes, each once; not those that were erased in an earlier run of the same run id."""
    gone = erased_among(location(None), [one.episode_id for one in intents])
    runs = sorted({one.run_id for one in intents})
    Writer().append_new(
        "dispatches",
        [one for one in intents if one.episode_id not in gone],
        key="episode_id",
        among=[("run_id", "in", runs)],
    )


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5, retry_condition_fn=infrastructure)
def fetch(problems: Sequence[Problem]) -> None:
    """Fetch the sources these problems need, once per machine."""
    prepare(problems)


@task(cache_policy=NO_CACHE)
async def rehearse(play: Play) -> None:
    """Before any episode: whether a command-line agent can be run in a box here. SandboxError, with the remedy.

    DefinitionError where it is to have prompts that it would never see.
    """
    agent = None if play.agent == "policy" else find(play.agent)
    if isinstance(agent, CommandAgent):
        if play.prompts.own:
            raise DefinitionError(
                f"agent {agent.name} is a command, whose prompts are in its definition and program: "
                f"{', '.join(play.prompts.own)} would change nothing. Leave --prompts out"
            )
        await check(agent, await asyncio.to_thread(backends.choose, play.backend), Settings().door)


async def same_prompts(run_id: str, prompts: Prompts) -> None:
    """PromptError where a run or a loop that goes on was told something else before: its groups would be of both."""
    for before in await asyncio.to_thread(told_by, None, run_id):
        if before != prompts.own:
            raise PromptError(
                f"{run_id} was begun with {_named(before)} and would go on with {_named(prompts.own)}, so that samples of one "
                "problem would not have been told the same: give the prompts that it began with, or leave its id out to "
                "begin anew"
            )


def _named(own: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {text}" for name, text in sorted(own.items())) or "the shipped prompts"


@task(cache_policy=NO_CACHE, retries=1, retry_delay_seconds=2, retry_condition_fn=infrastructure)
async def roll_out(
    shard: Sequence[Dispatch], problems: Mapping[str, Problem], play: Play, progress: Progress
) -> list[Result]:
    """Play a shard of episodes, `play.concurrency` at a time. What an episode meets becomes its status, not an exception."""
    kinds = {problems[intent.problem_id].kind for intent in shard}
    async with set_up(play, shard[0].run_id, progress, kinds) as stage, asyncio.TaskGroup() as group:
        running = [group.create_task(stage.perform(intent, problems[intent.problem_id])) for intent in shard]
    return [episode.result() for episode in running]


def shards(dispatches: Sequence[Dispatch], size: int) -> list[list[Dispatch]]:
    """Dispatches in shards of at most `size`, in their order, which has a group's samples one after the other."""
    return [list(dispatches[start : start + size]) for start in range(0, len(dispatches), size)]


def own_run_id() -> str:
    """A run id derived from the Prefect flow run: when that is retried, it finds what it landed before."""
    return "run-" + digest(str(flow_run.id or uuid4()))[:12]
