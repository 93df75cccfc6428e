"""One episode, from dispatch to records: environment, gateway session, agent, grading. Only this module wires them."""

import asyncio
import time
import uuid
from collections.abc import Coroutine, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from lakehouse.records import Action, Call, Dispatch, Episode, Evidence, Problem, Status, dumps, now
from sandboxes.agents import Agent, DefinitionError, Endpoint, Sampling, find
from sandboxes.agents.base import AgentFailure, Job, ModelUnavailable, Step
from sandboxes.backends.base import Backend, SandboxError
from sandboxes.backends.labels import EPISODE, RUN, Labelled
from sandboxes.backends.trees import TreeStore
from sandboxes.deadline import Deadline, DeadlineExceeded
from sandboxes.gateway.client import GatewayClient, GatewayRefused, GatewayUnavailable, Session
from sandboxes.problems.base import Branching, Environment, EnvironmentFailure, Fact
from sandboxes.problems.kinds import kind_of
from sandboxes.programs import boxed
from sandboxes.prompts import SHIPPED, Prompts

STARTING_S = 300.0  # for room in the gateway, and for weights that are being swapped
FETCHING_S = 60.0
# Most of it is waiting for room: a patch that hangs has its second try with nothing beside it, and where many of a run hang,
# running out of time in that queue would make an infrastructure failure, which has no reward, of what deserves 0.
GRADING_S = 3600.0
CLOSING_S = 30.0  # each of: end the session, close the environment
AFTER_S = FETCHING_S + GRADING_S + 2 * CLOSING_S  # a box that the agent had may be needed until it has been graded
MARGIN_S = 1.0  # between a phase's deadline and the end of its time
PRODUCER = "lakeloop prompts 1"

# The one place where an exception gets its status; the first line that fits counts.
TAXONOMY: tuple[tuple[type[BaseException], Status], ...] = (
    (TimeoutError, Status.TIMEOUT),
    (EnvironmentFailure, Status.ENV_ERROR),
    (SandboxError, Status.INFRA_ERROR),
    (ModelUnavailable, Status.INFRA_ERROR),
    (GatewayUnavailable, Status.INFRA_ERROR),
    (GatewayRefused, Status.INFRA_ERROR),
    (OSError, Status.INFRA_ERROR),
    (AgentFailure, Status.AGENT_ERROR),
    (DefinitionError, Status.AGENT_ERROR),
)


@dataclass(frozen=True)
class Trees:
    """What becomes of the work trees of an episode whose environment has one."""

    store: TreeStore
    every_step: bool = True  # keep the tree after every tool call; its digest is in the action
    begin_from: str | None = None  # digest of the tree to begin with, in place of the problem's own


@dataclass(frozen=True)
class Result:
    """What one attempt leaves: rows for the lake."""

    episode: Episode
    calls: list[Call]
    actions: list[Action]
    evidence: list[Evidence]


async def run_episode(
    dispatch: Dispatch,
    problem: Problem,
    *,
    gateway: GatewayClient,
    backend: Backend,
    sampling: Sampling,
    deadline_s: float,
    model_name: str,
    model_version: int | None,
    trees: Trees | None = None,
    agent: Agent | None = None,
    door: Path | None = None,
    until: float | None = None,
    grading: asyncio.Semaphore | None = None,
    prompts: Prompts = SHIPPED,
    pinned: bool = False,
) -> Result:
    """Run an episode to its records. A bad rollout is data, not a crash: only cancellation comes out as an exception.

    The agent has `deadline_s` seconds for everything from opening the environment to its last action. Starting the
    session, fetching the calls and grading have deadlines of their own; grading happens if, and only if, the status is
    trainable. `agent`: None is the one that the dispatch names. `door`: the gateway's socket for programs in boxes. `until`:
    the moment of the monotonic clock by which its group must be done, whatever this episode waits for; fetching comes after.
    `grading`: places for gradings in boxes. `prompts`: what the conversation's start is made of.
    `pinned`: only weights of `model_version` may answer it, wherever they are served.
    """
    attempt = Attempt(
        dispatch,
        problem,
        gateway,
        backend,
        sampling,
        deadline_s,
        model_name,
        trees,
        agent,
        door,
        until,
        grading,
        prompts,
        model_version if pinned and dispatch.mode == "policy" else None,
    )
    try:
        await attempt.guard(attempt.begin(), *attempt.within(STARTING_S + CLOSING_S, "the start"))
        if attempt.session is not None:
            await attempt.guard(attempt.act(attempt.session), *attempt.within(deadline_s, "the episode"), AFTER_S)
        await attempt.guard(attempt.fetch(), FETCHING_S, "fetching")
        if attempt.status.trainable:
            await attempt.guard(attempt.grade(), *attempt.within(GRADING_S, "grading"), CLOSING_S)
    finally:
        await attempt.close()
    return attempt.result(model_version)


@dataclass
class Attempt:
    """One attempt in progress. `phase` is what it does and the status an unforeseen exception would give it."""

    dispatch: Dispatch
    problem: Problem
    gateway: GatewayClient
    backend: Backend
    sampling: Sampling
    deadline_s: float
    model_name: str
    trees: Trees | None = None
    agent: Agent | None = None
    door: Path | None = None
    until: float | None = None
    grading: asyncio.Semaphore | None = None
    prompts: Prompts = SHIPPED
    version: int | None = None  # the only one whose weights may answer; None: any
    attempt_id: str = field(default_factory=lambda: f"at-{uuid.uuid4().hex[:16]}")
    started_at: datetime = field(default_factory=now)
    start: float = field(default_factory=time.monotonic)
    phase: tuple[str, Status] = ("starting", Status.AGENT_ERROR)
    status: Status = Status.OK
    error: str | None = None
    environment: Environment | None = None
    session: Session | None = None
    ended: bool = False  # the session
    by_model: bool = False  # see `Ending`
    steps: list[Step] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    facts: Sequence[Fact] = ()

    async def guard(self, phase: Coroutine[Any, Any, None], limit_s: float, what: str, after_s: float = 0.0) -> None:
        """Run a phase within its time. The first exception of an attempt is its end; later ones are its echo.

        Its deadline comes a moment before its time is over, so that whoever waits can give up by itself and say why. Boxes that
        it starts have a lease until `after_s` seconds later.
        """
        margin = min(MARGIN_S, limit_s / 10)
        deadline = Deadline(limit_s - margin, what, after_s=margin + after_s)
        try:
            if limit_s <= 0:  # not begun: within a moment a call may be made that nobody waits for
                phase.close()
                raise DeadlineExceeded(f"the seconds for {what} were over before it had begun")
            async with asyncio.timeout(limit_s):
                with deadline:
                    await phase
        except Exception as error:  # noqa: BLE001 - a bad rollout is data; TAXONOMY gives it its status
            if self.status.trainable:
                doing, otherwise = self.phase
                if (
                    isinstance(error, TimeoutError) and not deadline.left() and not error.args
                ):  # nobody gave up by itself
                    error = deadline.exceeded(doing)
                self.status = next((status for kind, status in TAXONOMY if isinstance(error, kind)), otherwise)
                self.error = f"while {doing}: {type(error).__name__}: {error}".rstrip(": ")

    def within(self, limit_s: float, what: str) -> tuple[float, str]:
        """A phase's time and whose it is: its own, or what the group has left."""
        left = limit_s if self.until is None else self.until - time.monotonic()
        return (limit_s, what) if left >= limit_s else (max(left, 0.0), "the group")

    async def begin(self) -> None:
        """The session. Waiting for it is no time of the agent's."""
        self.phase = ("starting the gateway session", Status.INFRA_ERROR)
        self.session = await self.gateway.start_session(
            self.dispatch.episode_id, mode=self.dispatch.mode, version=self.version, wait_s=STARTING_S
        )

    async def act(self, session: Session) -> None:
        """Environment, agent."""
        self.start = time.monotonic()
        self.phase = ("opening the environment", Status.ENV_ERROR)
        kind = kind_of(self.problem.kind)
        labels = {RUN: self.dispatch.run_id, EPISODE: self.dispatch.episode_id}
        backend = Labelled(self.backend, labels)
        limits = {"max_turns": self.sampling.max_turns, "max_tokens": self.sampling.max_tokens}
        prompts = self.prompts.of(self.problem, **limits)
        self.environment = await kind.open(self.problem, backend, prompts)
        await self.branch()
        self.phase = (f"running agent {self.dispatch.agent}", Status.AGENT_ERROR)
        agent = self.agent or find(self.dispatch.agent)
        deadline = Deadline.current()
        assert deadline is not None  # `guard` set it
        job = Job(
            environment=self.environment,
            endpoint=Endpoint(self.gateway.openai_base_url, session.api_key, self.model_name),
            sampling=self.sampling,
            plan=kind.expert(self.problem) if agent.follows_plan else (),
            deadline=deadline,
            statement=self.problem.prompt,
            prompts=prompts,
            programs=boxed(self.environment, backend, self.door),
            steps=self.steps,
            keep=self.keep if self.trees is not None and self.trees.every_step else None,
        )
        ending = await agent.run(job)
        self.status, self.error, self.by_model = ending.status, ending.note, ending.by_model

    async def branch(self) -> None:
        """Begin with a tree that was kept, where one is asked for. The grader judges against the problem's own."""
        digest = self.trees.begin_from if self.trees is not None else None
        if self.trees is None or digest is None:
            return
        world: object = self.environment
        if not isinstance(world, Branching):
            raise EnvironmentFailure(f"an episode of the kind {self.problem.kind} has no work tree to begin from")
        world.tree = await asyncio.to_thread(self.trees.store.get, digest)

    async def keep(self) -> str | None:
        """The digest under which the work tree is kept as it is now; None where there is none."""
        world: object = self.environment
        if self.trees is None or not isinstance(world, Branching):
            return None
        return await asyncio.to_thread(self.trees.store.put, world.tree)

    async def fetch(self) -> None:
        """End the session and read what the gateway recorded, whatever the status."""
        if self.session is None:
            return
        self.phase = ("fetching the recorded calls", Status.INFRA_ERROR)
        await self.gateway.end_session(self.session)
        self.ended = True
        self.calls = await self.gateway.calls(
            self.session.session_id, episode_id=self.dispatch.episode_id, attempt_id=self.attempt_id
        )
        if self.by_model:
            self._check_calls()

    def _check_calls(self) -> None:
        """A program's exit status says little: one that never reached the model, or lost it, has no outcome to judge."""
        self.phase = (f"running agent {self.dispatch.agent}", Status.AGENT_ERROR)
        if not self.calls:
            raise AgentFailure("it ended well and never called the model: does it use {base_url} and {api_key}?")
        last = self.calls[-1]
        if last.status == Status.INFRA_ERROR:
            raise ModelUnavailable(f"its last model call, {last.call_id}, ended as {last.status}")

    async def grade(self) -> None:
        """Measure the outcome; facts are there in full or not at all."""
        assert self.environment is not None  # a trainable attempt has acted
        self.phase = ("grading", Status.ENV_ERROR)
        async with self.grading if self.grading and kind_of(self.problem.kind).boxed else nullcontext():
            measured = await self.environment.grade()
        # Where the prompts are the shipped ones there is no such fact: rows are as they always were.
        own = [Fact("prompts", self.prompts.own, PRODUCER)] if self.prompts.own else []
        self.facts = [*measured, *own]

    async def close(self) -> None:
        """Free the box and the session, also when the episode is being cancelled. Leases end what this cannot."""
        if self.environment is not None:
            with suppress(Exception):
                async with asyncio.timeout(CLOSING_S):
                    await self.environment.close()
        if self.session is not None and not self.ended:
            with suppress(Exception):
                async with asyncio.timeout(CLOSING_S):
                    await self.gateway.end_session(self.session)

    def result(self, model_version: int | None) -> Result:
        """The attempt as rows."""
        key = {"episode_id": self.dispatch.episode_id, "attempt_id": self.attempt_id}
        known = {call.call_id for call in self.calls}
        actions = [
            Action(
                **key,
                action_index=index,
                call_id=step.completion_id if step.completion_id in known else None,
                tool=step.tool,
                arguments=step.arguments,
                observation=step.observation.text,
                is_error=step.observation.is_error,
                duration_s=step.duration_s,
                started_at=step.started_at,
                tree=step.tree,
            )
            for index, step in enumerate(self.steps)
        ]
        evidence = [
            Evidence(**key, name=fact.name, value=dumps(fact.value), producer=fact.producer, created_at=now())
            for fact in self.facts
        ]
        return Result(self._episode(model_version), self.calls, actions, evidence)

    def _episode(self, model_version: int | None) -> Episode:
        dispatch = self.dispatch
        return Episode(
            episode_id=dispatch.episode_id,
            attempt_id=self.attempt_id,
            run_id=dispatch.run_id,
            group_id=dispatch.group_id,
            problem_id=dispatch.problem_id,
            problem_kind=self.problem.kind,
            split=self.problem.split,
            sample_index=dispatch.sample_index,
            agent=dispatch.agent,
            backend=self.environment.backend_name if self.environment else self.backend.name,
            mode=dispatch.mode,
            purpose=dispatch.purpose,
            status=self.status,
            error=self.error,
            session_id=self.session.session_id if self.session else "",
            model_name=self.model_name,
            model_version=model_version if dispatch.mode == "policy" else None,
            n_calls=len(self.calls),
            n_prompt_tokens=sum(len(call.prompt_token_ids) for call in self.calls),
            n_completion_tokens=sum(len(call.completion_token_ids) for call in self.calls),
            duration_s=time.monotonic() - self.start,
            started_at=self.started_at,
            ended_at=now(),
            problem_edition=self.problem.edition,
        )
