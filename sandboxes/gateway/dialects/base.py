"""What every dialect gives: a request understood, and the ways to tell its answer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel

from sandboxes.gateway.calls.request import Request
from sandboxes.gateway.errors import GatewayError
from sandboxes.gateway.sessions.flight import Part
from sandboxes.gateway.sessions.recorded import Recorded
from sandboxes.gateway.sessions.sessions import Session


class Events(Protocol):
    """Server-sent events of one answer, in order: `first`, `part` any number of times, then `last` or `error`."""

    def first(self) -> Iterator[bytes]:
        """What opens the stream."""

    def part(self, part: Part) -> Iterator[bytes]:
        """A stretch of content."""

    def last(self, calls: Sequence[Recorded]) -> Iterator[bytes]:
        """Everything after the streamed parts: the whole answer, where it is given again out of the journal."""

    def error(self, error: GatewayError) -> Iterator[bytes]:
        """An error after the stream began."""


@dataclass(frozen=True)
class Asked:
    """A request in no dialect any more. The functions take its recorded calls: one per choice, of one prompt's after
    the other's."""

    request: Request
    whole: Callable[[Sequence[Recorded]], dict[str, Any]]
    events: Callable[[Sequence[Recorded]], Events] | None = None  # None: the answer is told in one piece
    more: Sequence[Request] = ()  # further prompts of the same request; their choices come after the first one's


class Dialect(Protocol):
    """One wire format of model calls."""

    @property
    def name(self) -> str:
        """In metrics and logs."""

    @property
    def shape(self) -> type[BaseModel]:
        """Of a body: what `parse` validates with, and what the OpenAPI document shows."""

    @property
    def errors(self) -> type[BaseModel]:
        """Of what `error` gives, for the OpenAPI document."""

    def parse(self, raw: bytes, headers: Mapping[str, str], session: Session, model: str) -> Asked:
        """The call that a body asks for. BadRequest names the parameter at fault."""

    def error(self, error: GatewayError) -> dict[str, Any]:
        """The error's body."""
