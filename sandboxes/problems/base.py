"""What a kind of problem gives an episode: an environment to act in and a grader."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from lakehouse.records import Problem
from sandboxes.backends.base import Backend
from sandboxes.prompts import SHIPPED, Prompts


class EnvironmentFailure(Exception):
    """The problem's own environment failed (a missing corpus, a broken problem). An episode that meets this ends as `env_error`."""


@dataclass(frozen=True)
class Observation:
    """What a tool call gave. `done` ends the episode."""

    text: str
    is_error: bool = False
    done: bool = False


@dataclass(frozen=True)
class Fact:
    """A measured fact, before it becomes an Evidence row. `value` is JSON."""

    name: str
    value: Mapping[str, Any]
    producer: str


@dataclass(frozen=True)
class ToolCall:
    """A tool call an expert would make next."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


class Environment(Protocol):
    """One episode's world. Made per episode, closed at its end."""

    backend_name: str  # "docker", "bubblewrap", "scripted", or "none" where no code runs

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        """The conversation's start: system and user messages in OpenAI's form."""
        ...

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        """Tool schemas in OpenAI's form."""
        ...

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        """Run one tool call. Wrong names or arguments are an observation with `is_error`, never an exception."""
        ...

    async def grade(self) -> Sequence[Fact]:
        """Measure the outcome, away from anything the agent could touch. Called once, after the agent stopped."""
        ...

    async def close(self) -> None:
        """Free what the episode held. May be called twice."""
        ...


@runtime_checkable
class Listener(Protocol):
    """An environment that also takes what a model says last, in plain text, where it says that instead of a tool call."""

    def hear(self, text: str) -> None:
        """The model's last message."""
        ...


@runtime_checkable
class Branching(Protocol):
    """An environment whose state is a work tree, path -> content: it can be kept, and begun from."""

    tree: Mapping[str, bytes]


class Kind(Protocol):
    """A kind of problem. Each package of a kind ships one as `KIND`."""

    name: str
    boxed: bool  # whether its episodes are played, and graded, in boxes

    async def open(self, problem: Problem, backend: Backend, prompts: Prompts = SHIPPED) -> Environment:
        """The environment of one episode. `prompts`: what its messages are made of."""
        ...

    def expert(self, problem: Problem) -> Sequence[ToolCall]:
        """The oracle's tool calls, in order; the last one ends the episode. Also what demonstrations are made of."""
        ...

    def solved(self, facts: Sequence[Fact]) -> bool:
        """Whether facts are full marks. For the gates only: rewards are SQL over evidence."""
        ...
