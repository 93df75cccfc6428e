"""What an agent is: something that acts in an environment, with a model behind a base URL."""

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from lakehouse.records import Status, dumps, now
from sandboxes.deadline import Deadline
from sandboxes.problems.base import Environment, Observation, ToolCall
from sandboxes.prompts import SHIPPED, Prompts


class ModelUnavailable(Exception):
    """The model's endpoint did not answer in time or refused the session. The episode ends as `infra_error`."""


class AgentFailure(Exception):
    """The agent itself went wrong: a request the endpoint calls invalid, an expert whose path does not work."""


@dataclass(frozen=True)
class Sampling:
    """How the policy is sampled, and how far it may go."""

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 256  # per turn
    max_turns: int = 16
    seed: int | None = None  # of the sampler's noise, counted up by turn: models that are alike then say alike things


@dataclass(frozen=True)
class Endpoint:
    """All that an agent knows of the model."""

    base_url: str  # ends in /v1
    api_key: str
    model: str


@dataclass(frozen=True)
class Step:
    """One tool call that was made, and what came back."""

    completion_id: str | None  # of the model's answer that asked for it
    tool: str
    arguments: str  # JSON as the model wrote it
    observation: Observation
    duration_s: float
    started_at: datetime
    tree: str | None = None  # digest of the work tree after it, where it is kept


@dataclass(frozen=True)
class Ending:
    """How an agent stopped, in a status that is trainable; everything else is an exception."""

    status: Literal[Status.OK, Status.TRUNCATED, Status.MODEL_ERROR]
    note: str | None = None  # where it is not the environment's own end: why, for people
    by_model: bool = False  # it counts only where the model was called, and its last call did not fail


@dataclass(frozen=True)
class Program:
    """A program that is an agent by itself, and the box that it needs."""

    argv: Sequence[str]
    env: Mapping[str, str]
    files: Mapping[str, bytes]  # its own, by path below `Programs.folder`
    image: str | None  # one of somebody's own, or one with these packages; None and none: any will do
    python: Sequence[str]
    debian: Sequence[str]
    timeout_s: float
    memory_mb: int
    processes: int


@dataclass(frozen=True)
class Ran:
    """A program that has ended. `output`: both streams, of long ones head and tail."""

    exit_code: int | None  # None: it was stopped at its time limit
    output: str


class Programs(Protocol):
    """Runs programs in boxes that hold the problem's work tree, which is theirs to change."""

    base_url: str  # of the model, as it is reached from there; ends in /v1
    folder: str  # where a program's own files lie there

    async def run(self, program: Program) -> Ran:
        """Run it to its end, or its time limit."""
        ...


@dataclass
class Job:
    """One run of an agent. `steps` grows while it acts, so that nothing is lost when it breaks off."""

    environment: Environment
    endpoint: Endpoint
    sampling: Sampling
    plan: Sequence[ToolCall]  # the oracle's tool calls, for an agent that follows a plan; else empty
    deadline: Deadline
    statement: str = ""  # of the problem, for agents that put it into words of their own
    prompts: Prompts = SHIPPED  # of this problem, for agents that do not begin with the environment's messages
    programs: Programs | None = None  # None: the problem has no work tree
    steps: list[Step] = field(default_factory=list)
    keep: Callable[[], Awaitable[str | None]] | None = None  # keeps the work tree as it is now; its digest

    async def act(self, tool: str, arguments: str, completion_id: str | None) -> Observation:
        """Make one tool call, whatever the model wrote, and keep it."""
        started_at, start = now(), time.monotonic()
        parsed = parse(arguments)
        if parsed is None:
            seen = Observation("The arguments are not a JSON object.", is_error=True)
        else:
            seen = await self.environment.call(tool, parsed)
        seconds = time.monotonic() - start
        tree = None if self.keep is None else await self.keep()
        self.steps.append(Step(completion_id, tool, arguments, seen, seconds, started_at, tree))
        return seen


class Agent(Protocol):
    """A way to act. Agents hold no state between runs."""

    @property
    def name(self) -> str: ...

    @property
    def follows_plan(self) -> bool:
        """Whether it is shown the oracle's tool calls."""
        ...

    async def run(self, job: Job) -> Ending:
        """Act until the environment is done, the model stops, or a limit is met."""
        ...


def parse(arguments: str) -> Mapping[str, Any] | None:
    """Tool arguments as a mapping, or None where they are not a JSON object, nest too deep, or hold half a surrogate
    pair: that is valid JSON and no text, so nobody could write it down."""
    try:
        value = json.loads(arguments)
        dumps(value).encode()
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


async def play(job: Job, plan: Sequence[ToolCall]) -> bool:
    """Make fixed tool calls without a model, to the environment's end. Whether it was reached."""
    for call in plan:
        seen = await job.act(call.name, dumps(call.arguments), None)
        if seen.done:
            return True
    return False
