"""A running request, and the stretches of its answer as they are streamed."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from lakehouse.records import Status
from sandboxes.gateway.sessions.recorded import Message, Recorded

Kind = Literal["content", "reasoning"]


@dataclass(frozen=True)
class Part:
    """A stretch of one choice's text as it is streamed; reasoning comes before content.

    `logprobs`: of its tokens, in OpenAI's form, where the client asked; the text may be empty then.
    """

    text: str
    choice: int = 0
    kind: Kind = "content"
    logprobs: tuple[Message, ...] = ()


class Flight:
    """A running request. Parts of the content arrive on a queue, `None` at the end; the recorded calls are the task's.

    Digest and key are those of its body and headers, so that a repetition finds it before it is dispatched.
    """

    def __init__(
        self, work: Callable[["Flight"], Any], choices: int, body_digest: str = "", idempotency_key: str | None = None
    ) -> None:
        self.choices = choices
        self.body_digest = body_digest
        self.idempotency_key = idempotency_key
        self.parts: asyncio.Queue[Part | None] = asyncio.Queue()
        self.ending = (Status.CANCELLED, "the client disconnected or the session ended")
        self.calls: list[Recorded] = []  # one per choice, from dispatch on
        self.task: asyncio.Task[list[Recorded]] = asyncio.create_task(work(self))
        self.task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[list[Recorded]]) -> None:
        if not task.cancelled():
            task.exception()  # seen, also where the client is gone and nobody asks
        self.parts.put_nowait(None)

    def cancel(self, status: Status = Status.CANCELLED, cause: str | None = None) -> None:
        """Abort generation; the call is recorded with this status."""
        if cause:
            self.ending = (status, cause)
        self.task.cancel()
