"""Streaming to the client while the engine generates.

Each step asks the engine's streaming derender, whose cost grows with what was said, so steps are spaced out: the first
token goes at once, then the pause doubles up to a limit. Tool calls wait for the end: the reply is parsed as a whole.
"""

import time
from collections.abc import Callable
from typing import Any

from sandboxes.gateway.engine import Completion, Engine
from sandboxes.gateway.errors import EngineRefused
from sandboxes.gateway.facts import Conversation
from sandboxes.gateway.recorded import Message

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 0.8


class Deltas:
    """Content of one completion, handed on in parts."""

    def __init__(
        self,
        engine: Engine,
        conversation: Conversation,
        prompt: list[int],
        stop: list[str],
        emit: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._conversation = conversation
        self._prompt = prompt
        self._emit = emit
        self._held_chars = max((len(text) - 1 for text in stop), default=0)  # what may be the start of a stop string
        self._state: dict[str, Any] | None = None
        self._read = 0  # ids derendered
        self._text = ""  # content derendered
        self._sent = 0  # chars emitted
        self._next = 0.0
        self._pause_s = FIRST_PAUSE_S

    async def step(self, completion: Completion) -> None:
        """Emit what is new, where a step is due."""
        if completion.finish_reason is not None or time.monotonic() < self._next:
            return
        new = completion.token_ids[self._read :]
        try:
            text, self._state = await self._engine.derender_step(new, self._prompt, self._conversation, self._state)
        except EngineRefused:
            self._next = float("inf")  # the parser cannot read this: the rest comes with the whole reply
            return
        self._read += len(new)
        self._text += text
        self._send(self._text[: len(self._text) - self._held_chars])
        self._next = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def finish(self, message: Message) -> Message:
        """Emit the rest of the parsed reply's content. Returns the message as the client has it now."""
        content = message.get("content") or ""
        sent = self._text[: self._sent]
        if not content.startswith(sent):  # the streaming parser and the whole parser disagree: what was said was said
            return {**message, "content": sent}
        self._text = content
        self._send(content)
        return message

    def _send(self, text: str) -> None:
        if len(text) > self._sent:
            self._emit(text[self._sent :])
            self._sent = len(text)
