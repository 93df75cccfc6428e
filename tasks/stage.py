"""Where episodes are played: an engine, a gateway, boxes, and how many episodes at a time."""

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace

from lakehouse.records import Dispatch, Problem, digest
from sandboxes import backends
from sandboxes.agents import Agent, Sampling, find
from sandboxes.backends.base import Backend, BackendUnavailable
from sandboxes.backends.labels import RUN
from sandboxes.backends.pool import Pool, Starting
from sandboxes.backends.trees import TreeStore
from sandboxes.episode import Result, Trees, run_episode
from sandboxes.gateway.client import GatewayClient
from sandboxes.problems.kinds import kind_of
from sandboxes.prompts import SHIPPED, Prompts
from tasks.limits import places
from tasks.progress import Progress
from tasks.serving.engine import Engine
from tasks.serving.errors import EngineError
from tasks.stack.gateway import gateway_client
from tasks.stack.limits import BOXES, ENGINE, GRADING, cores
from tasks.stack.settings import Settings


@dataclass(frozen=True)
class Play:
    """How episodes are played."""

    sampling: Sampling
    backend: str
    concurrency: int
    deadline_s: float
    agent: str = "policy"  # each kind's own; else an agent's name, or a file that defines one
    keep_trees: bool = False  # after every tool call
    warm_boxes: int = 0
    sampling_seed: int | None = None  # None: the engine's own noise
    prompts: Prompts = SHIPPED
    version: int | None = None  # the only one whose weights may answer; None: what is served

    def sampled(self, intent: Dispatch) -> Sampling:
        """How an episode is sampled: with noise of its own, the same for the same sample of a problem in every run."""
        if self.sampling_seed is None:
            return self.sampling
        own = digest(str(self.sampling_seed), intent.problem_id, str(intent.sample_index))
        return replace(self.sampling, seed=int(own[:7], 16))


@dataclass
class Term:
    """A group's deadline: so many seconds from the moment its first sample begins."""

    seconds: float
    until: float | None = None  # of the monotonic clock

    def begin(self) -> float:
        """The end. The first call fixes it."""
        if self.until is None:
            self.until = time.monotonic() + self.seconds
        return self.until


@dataclass(frozen=True)
class Room:
    """How many episodes, episodes in boxes, and gradings go on at a time."""

    episodes: asyncio.Semaphore
    boxed: asyncio.Semaphore
    grading: asyncio.Semaphore
    boxes: int  # places for episodes in boxes that there are in all


_ROOM: ContextVar[Room | None] = ContextVar("room", default=None)


@dataclass
class Stage:
    """What all episodes of a run, or of a loop, share."""

    play: Play
    settings: Settings
    engine: Engine
    gateway: GatewayClient
    boxes: Backend
    agent: Agent | None
    trees: Trees | None
    progress: Progress
    room: Room
    version: int  # that was served when it was looked at last

    async def perform(self, intent: Dispatch, problem: Problem, term: Term | None = None) -> Result:
        """Play an episode as soon as there is a place. What it meets becomes its status, not an exception."""
        boxed = self.room.boxed if kind_of(problem.kind).boxed else nullcontext()
        async with boxed, self.room.episodes:
            pinned = self.play.version
            if pinned is None:
                with suppress(EngineError):  # the episode will meet it too, and say so
                    self.version = await asyncio.to_thread(self.engine.served_version, proven=False)
            result = await run_episode(
                intent,
                problem,
                gateway=self.gateway,
                backend=self.boxes,
                sampling=self.play.sampled(intent),
                deadline_s=self.play.deadline_s,
                model_name=self.settings.model_name,
                model_version=self.version if pinned is None else pinned,
                trees=self.trees,
                agent=self.agent,
                door=self.settings.door,
                until=term.begin() if term else None,
                grading=self.room.grading,
                prompts=self.play.prompts,
                pinned=pinned is not None,
            )
        await self.progress.advance()
        return result


@asynccontextmanager
async def set_up(play: Play, run_id: str, progress: Progress, kinds: Collection[str]) -> AsyncIterator[Stage]:
    """A stage for problems of these kinds, for as long as the block runs. Boxes that it keeps warm are labelled with the run.

    Episodes, boxes and gradings at a time are at most what is free of the limits that all runs share: `tasks.limits`. Within
    another stage, as an evaluation within a loop, they share the room of that one: it must not wait for what it is part of.
    """
    settings = Settings()
    in_boxes = play.concurrency if any(kind_of(kind).boxed for kind in kinds) else 0
    backend = await asyncio.to_thread(backends.choose, play.backend)
    with suppress(BackendUnavailable):  # episodes without a box need no image, and those with one say what is missing
        await asyncio.to_thread(backend.prepare)
    async with (
        _room(play.concurrency, in_boxes) as room,
        gateway_client() as gateway,
        _warm(backend, play.warm_boxes, run_id) as boxes,
    ):
        with Engine(settings.engine) as engine:
            yield Stage(
                play,
                settings,
                engine,
                gateway,
                boxes,
                agent=None if play.agent == "policy" else find(play.agent),
                trees=Trees(TreeStore()) if play.keep_trees else None,
                progress=progress,
                room=room,
                version=await asyncio.to_thread(engine.served_version, proven=False),
            )


@asynccontextmanager
async def _room(concurrency: int, in_boxes: int) -> AsyncIterator[Room]:
    """The room of the stage around this one, else one of its own."""
    around = _ROOM.get()
    if around is not None and (around.boxes or not in_boxes):
        yield around
        return
    async with (
        places(ENGINE, concurrency) as playing,
        places(BOXES, min(in_boxes, playing)) as boxed,
        places(GRADING, min(boxed, cores())) as grading,
    ):
        room = Room(asyncio.Semaphore(playing), asyncio.Semaphore(boxed), asyncio.Semaphore(grading), boxed)
        token = _ROOM.set(room)
        try:
            yield room
        finally:
            _ROOM.reset(token)


@asynccontextmanager
async def _warm(backend: Starting, size: int, run_id: str) -> AsyncIterator[Backend]:
    """The backend, with so many boxes of it kept started."""
    if not size:
        yield backend
        return
    async with Pool(backend, size=size, labels={RUN: run_id}) as pool:
        yield pool
