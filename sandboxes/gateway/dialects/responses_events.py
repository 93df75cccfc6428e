"""The Responses API's events, as OpenAI's SDK puts them together: every item is added, filled and done."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sandboxes.gateway.dialects.wire import event
from sandboxes.gateway.errors import GatewayError
from sandboxes.gateway.sessions.flight import Part
from sandboxes.gateway.sessions.recorded import Recorded

# By the type of an item with text: how its part and its events are called.
PARTS = {"message": "output_text", "reasoning": "reasoning_text"}


class ResponseEvents:
    """Server-sent events of one response. `begun`: the response before its answer; `tell`: a call's response."""

    def __init__(self, call: Recorded, begun: dict[str, Any], tell: Callable[[Recorded], dict[str, Any]]) -> None:
        self._key = call.intent.call_id.rpartition("_")[2]
        self._begun = begun
        self._tell = tell
        self._number = 0
        self._places: dict[str, int] = {}  # item id -> output index, from when the item was added
        self._sent: dict[str, int] = {}  # item id -> characters told

    def first(self) -> Iterator[bytes]:
        """The response, begun."""
        yield self._event("response.created", response=self._begun)
        yield self._event("response.in_progress", response=self._begun)

    def part(self, part: Part) -> Iterator[bytes]:
        """A part of the reasoning or the text; the first one adds the item."""
        if part.text and part.kind == "reasoning":
            yield from self._text({"id": f"rs_{self._key}", "type": "reasoning", "summary": []}, part.text)
        elif part.text:
            yield from self._text({"id": f"msg_{self._key}", "type": "message", "role": "assistant"}, part.text)

    def last(self, calls: Sequence[Recorded]) -> Iterator[bytes]:
        """Everything after the streamed parts: the whole answer, where it is given again out of the journal."""
        response = self._tell(calls[0])
        # Items that were added on the way stand where they were added.
        response["output"].sort(key=lambda item: self._places.get(item["id"], len(self._places)))
        for item in response["output"]:
            yield from self._call(item) if item["type"] == "function_call" else self._rest(item)
            yield self._event("response.output_item.done", output_index=self._places[item["id"]], item=item)
        yield self._event(f"response.{response['status']}", response=response)

    def error(self, error: GatewayError) -> Iterator[bytes]:
        """An error after the stream began."""
        code = "server_error" if error.status >= 500 else "invalid_prompt"
        failed = {**self._begun, "status": "failed", "error": {"code": code, "message": error.message}}
        yield self._event("response.failed", response=failed)

    def _text(self, item: dict[str, Any], text: str) -> Iterator[bytes]:
        """More text of an item, which is added where it is new."""
        kind, place = PARTS[item["type"]], self._places.get(item["id"])
        if place is None:
            yield self._added({**item, "content": []})
            empty: dict[str, Any] = {"type": kind, "text": ""}
            if kind == "output_text":
                empty |= {"annotations": [], "logprobs": []}
            yield self._part("response.content_part.added", item, part=empty)
        if text:
            self._sent[item["id"]] = self._sent.get(item["id"], 0) + len(text)
            extra: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
            yield self._part(f"response.{kind}.delta", item, delta=text, **extra)

    def _rest(self, item: dict[str, Any]) -> Iterator[bytes]:
        """What was not told yet of an item with text, and its end."""
        [part] = item["content"]
        yield from self._text(item, part["text"][self._sent.get(item["id"], 0) :])
        extra = {"logprobs": part["logprobs"]} if "logprobs" in part else {}
        yield self._part(f"response.{PARTS[item['type']]}.done", item, text=part["text"], **extra)
        yield self._part("response.content_part.done", item, part=part)

    def _call(self, item: dict[str, Any]) -> Iterator[bytes]:
        """A function call: its name, then its arguments."""
        yield self._added({**item, "arguments": ""})
        where = {"item_id": item["id"], "output_index": self._places[item["id"]]}
        yield self._event("response.function_call_arguments.delta", **where, delta=item["arguments"])
        done = {"name": item["name"], "arguments": item["arguments"]}
        yield self._event("response.function_call_arguments.done", **where, **done)

    def _added(self, item: dict[str, Any]) -> bytes:
        place = self._places[item["id"]] = len(self._places)
        return self._event("response.output_item.added", output_index=place, item={**item, "status": "in_progress"})

    def _part(self, name: str, item: dict[str, Any], /, **told: Any) -> bytes:
        return self._event(name, item_id=item["id"], output_index=self._places[item["id"]], content_index=0, **told)

    def _event(self, name: str, /, **told: Any) -> bytes:
        self._number += 1
        return event({"type": name, "sequence_number": self._number - 1, **told}, name)
