"""Streaming to the client while the engine generates.

Where the engine does not tell the text with the ids, each step asks its streaming derender, whose cost grows with what was
said, so steps are spaced out: the first token goes at once, then the pause doubles up to a limit. Tool calls wait for the
end: the reply is parsed as a whole.
"""

import time
from collections.abc import Callable
from typing import Any

from sandboxes.gateway.calls.reply import sure, trimmed
from sandboxes.gateway.calls.request import Request
from sandboxes.gateway.engines.engine import Engine
from sandboxes.gateway.engines.facts import Facts
from sandboxes.gateway.engines.tokens import Completion
from sandboxes.gateway.errors import EngineRefused
from sandboxes.gateway.sessions.flight import Kind, Part
from sandboxes.gateway.sessions.recorded import Conversation, Message

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 0.8
CONTEXT = 4  # ids before a step from which the engine completes a character that began in them
KINDS: tuple[Kind, ...] = ("reasoning", "content")
Emit = Callable[[Part], None]


class Told:
    """What the client has been told of one choice, by kind."""

    def __init__(self, choice: int, emit: Emit) -> None:
        self._choice = choice
        self._emit = emit
        self._said = dict.fromkeys(KINDS, "")

    def more(self, texts: dict[Kind, str], logprobs: tuple[Message, ...] = ()) -> None:
        """Emit what each text has over what was told of its kind."""
        for kind in KINDS:
            new = texts.get(kind, "")[len(self._said[kind]) :]
            if new or (logprobs and kind == KINDS[-1]):
                self._emit(Part(new, self._choice, kind, logprobs if kind == KINDS[-1] else ()))
                self._said[kind] += new

    def finish(self, message: Message) -> Message:
        """Emit the rest of the whole reply. Returns the message as the client has it now.

        Where a parser reads the whole differently from its beginning, what was said was said.
        """
        meant = {kind: message.get(kind) or "" for kind in KINDS}
        kept: dict[Kind, str] = {
            kind: text if text.startswith(self._said[kind]) else self._said[kind] for kind, text in meant.items()
        }
        self.more(kept)
        changed: Message = {kind: text for kind, text in kept.items() if text != meant[kind]}
        return {**message, **changed}


class Deltas:
    """Text of one completion, handed on in parts."""

    def __init__(self, engine: Engine, request: Request, prompt: list[int], told: Told, facts: Facts) -> None:
        self._engine = engine
        self._request = request
        self._prompt = prompt
        self._told = told
        self._facts = facts
        # What may be the start of a stop string is held back.
        self._held_chars = max((len(text) - 1 for text in request.stop), default=0)
        self._state: dict[str, Any] | None = None
        self._read = 0  # ids derendered
        self._texts: dict[Kind, str] = dict.fromkeys(KINDS, "")
        self._next = 0.0
        self._pause_s = FIRST_PAUSE_S

    async def step(self, completion: Completion) -> None:
        """Emit what is new, where a step is due."""
        if completion.finish_reason is not None or time.monotonic() < self._next:
            return
        if completion.text is not None:
            self._texts["content"] = completion.text
            self._tell(())
            return
        new = completion.token_ids[self._read :]
        try:
            delta, self._state = await self._engine.derender_step(
                new, self._prompt, self._request.conversation, self._state
            )
            entries = await self._entries(completion)
        except EngineRefused:
            self._next = float("inf")  # the parser cannot read this: the rest comes with the whole reply
            return
        self._read += len(new)
        for kind in KINDS:
            self._texts[kind] += delta.get(kind) or ""
        self._tell(entries)

    def _tell(self, entries: tuple[Message, ...]) -> None:
        self._told.more(self._safe(), entries)
        self._next = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def _safe(self) -> dict[Kind, str]:
        """The texts without what may be the start of a stop string or of a tool call: the end of what is being said."""
        last: Kind = "content" if self._texts["content"] else "reasoning"
        held = {**self._texts, last: self._texts[last][: len(self._texts[last]) - self._held_chars]}
        return {**held, "content": sure(held["content"], self._request, self._facts)}

    async def _entries(self, completion: Completion) -> tuple[Message, ...]:
        """Log-probs of the new ids in the client's form. The ids before them go along: a character may begin there."""
        top = self._request.top_logprobs
        if top is None:
            return ()
        context = min(self._read, CONTEXT)
        begin = self._read - context
        plain = Conversation([], template_kwargs=self._request.conversation.template_kwargs)
        ids, raw = completion.token_ids[begin:], completion.entries(begin)
        choice = await self._engine.derender(ids, self._prompt, plain, raw)
        return tuple(trimmed(entry, top) for entry in choice["logprobs"]["content"][context:])
