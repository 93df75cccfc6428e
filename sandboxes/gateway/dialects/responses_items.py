"""The Responses API's items, both ways: input items to turns, a recorded call to output items.

An assistant turn is one to many items: its reasoning, its text, its function calls. Item ids are made from the call's
id, so that a turn told again, streamed or referred to has the same items.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sandboxes.gateway.dialects.wire import tagged
from sandboxes.gateway.errors import BadRequest
from sandboxes.gateway.sessions.recorded import Message, Recorded
from sandboxes.gateway.sessions.sessions import Session

PREFIX = "resp_"
ItemStatus = Literal["in_progress", "completed", "incomplete"]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Text(Strict):
    """A part of a message's content, as a client writes it or as it was given it."""

    type: Literal["input_text", "output_text", "summary_text", "reasoning_text"]
    text: str
    annotations: list[None] = Field(default=[], max_length=0)
    logprobs: list[Any] | None = None  # echoed
    parsed: Any = None  # added by the SDK's `parse` and `stream` helpers
    prompt_cache_breakpoint: None = None


class Said(Strict):
    """A message item; `type` may be missing."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[dict[str, Any]]
    id: str | None = None
    status: ItemStatus | None = None
    phase: Literal["commentary", "final_answer"] | None = None  # a label of OpenAI's own models


class FunctionCall(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_by_name=True, validate_by_alias=True)

    type: Literal["function_call"]
    call_id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    arguments: str
    id: str | None = None
    status: ItemStatus | None = None
    namespace: None = None
    caller: None = None
    async_: None = Field(default=None, alias="async")  # `async_` is how Python's SDK dumps it
    parsed_arguments: Any = None  # added by the SDK's `parse` and `stream` helpers


class FunctionCallOutput(Strict):
    type: Literal["function_call_output"]
    call_id: str = Field(min_length=1)
    output: str | list[dict[str, Any]]
    id: str | None = None
    status: ItemStatus | None = None
    name: str | None = None
    namespace: None = None
    caller: None = None


class Reasoning(Strict):
    type: Literal["reasoning"]
    id: str | None = None
    summary: list[dict[str, Any]] = []
    content: list[dict[str, Any]] | None = None
    encrypted_content: None = None
    status: ItemStatus | None = None


class ItemReference(Strict):
    type: Literal["item_reference"]
    id: str


ITEMS: dict[str, type[BaseModel]] = {
    "message": Said,
    "function_call": FunctionCall,
    "function_call_output": FunctionCallOutput,
    "reasoning": Reasoning,
    "item_reference": ItemReference,
}
TEXTS: dict[str, type[BaseModel]] = dict.fromkeys(("input_text", "output_text"), Text)
THOUGHTS: dict[str, type[BaseModel]] = dict.fromkeys(("reasoning_text", "summary_text"), Text)


class Turns:
    """Puts items together as turns. `recorded` are the session's turns: what belongs to one stays in one."""

    def __init__(self, session: Session) -> None:
        self.messages: list[Message] = []
        self._session = session
        self._turn: Message | None = None  # the assistant's last turn, while items may still belong to it

    def add(self, items: Sequence[Any], where: str = "input") -> None:
        """Append items. BadRequest names the one that is not served."""
        for n, item in enumerate(items):
            self._add(tagged(item, ITEMS, f"{where}.{n}", "message"), f"{where}.{n}")

    def _add(self, item: BaseModel, where: str) -> None:
        match item:
            case ItemReference():
                self.add([self._referenced(item.id, where)], where)
            case Said(role="assistant"):
                self._speaking(new=self._spoken("content", "tool_calls"))["content"] = texts(item.content, where)
            case Said():
                self._append({"role": item.role, "content": texts(item.content, where)})
            case Reasoning():
                # Its own words where there are some, else the summary.
                thought = texts(item.content or item.summary, where, THOUGHTS)
                turn = self._speaking(new=self._spoken("content", "tool_calls"))
                turn["reasoning"] = turn.get("reasoning", "") + thought
            case FunctionCall():
                function = {"name": item.name, "arguments": item.arguments}
                turn = self._calling(item.call_id)
                calls = turn.get("tool_calls") or []
                if item.call_id in [call["id"] for call in calls]:
                    raise BadRequest(
                        f"'{where}': the call {item.call_id!r} is there already, in this input or the previous response",
                        param=where,
                    )
                # A new list: the turn may be a recorded one.
                turn["tool_calls"] = [*calls, {"id": item.call_id, "type": "function", "function": function}]
            case FunctionCallOutput():
                self._append({"role": "tool", "content": texts(item.output, where), "tool_call_id": item.call_id})

    def _append(self, message: Message) -> None:
        self.messages.append(message)
        self._turn = None

    def _speaking(self, *, new: bool) -> Message:
        """The assistant's turn that the next item belongs to."""
        if self._turn is None or new:
            turn: Message = {"role": "assistant", "content": None}
            self._append(turn)
            self._turn = turn
        assert self._turn is not None
        return self._turn

    def _spoken(self, *parts: str) -> bool:
        return self._turn is not None and any(self._turn.get(part) is not None for part in parts)

    def _calling(self, call_id: str) -> Message:
        """The turn of a function call. Parallel calls were one turn, also where a client put each before its output."""
        last = next((turn for turn in reversed(self.messages) if turn["role"] != "tool"), {})
        if self._turn is None and last.get("tool_calls") and last["tool_calls"][0]["id"] in self._siblings(call_id):
            return last
        return self._speaking(new=False)

    def _siblings(self, call_id: str) -> list[str]:
        """The ids of the recorded turn that made this call."""
        for call in reversed(self._session.calls):
            ids = [one["id"] for one in _message(call).get("tool_calls") or []] if call.answered else []
            if call_id in ids:
                return ids
        return []

    def _referenced(self, item_id: str, where: str) -> dict[str, Any]:
        for call in self._session.calls:
            found = [item for item in output(call) if item["id"] == item_id] if call.answered else []
            if found:
                return found[0]
        raise BadRequest(f"'{where}.id': no item {item_id!r} in this session", param=f"{where}.id")


def texts(content: str | Sequence[Any], where: str, shapes: dict[str, type[BaseModel]] = TEXTS) -> str:
    """The text of a content that is text or a list of parts. BadRequest names a part that is none."""
    if isinstance(content, str):
        return content
    return "".join(tagged(part, shapes, f"{where}.content.{n}").text for n, part in enumerate(content))


def output(call: Recorded) -> list[dict[str, Any]]:
    """The items of a recorded answer."""
    return list(_items(call))


def _items(call: Recorded) -> Iterator[dict[str, Any]]:
    assert call.answer is not None
    message, key = _message(call), call.intent.call_id.rpartition("_")[2]
    status = "incomplete" if call.answer.finish_reason == "length" else "completed"
    if message.get("reasoning"):
        content = [{"type": "reasoning_text", "text": message["reasoning"]}]
        yield {"id": f"rs_{key}", "type": "reasoning", "summary": [], "content": content, "status": status}
    calls = message.get("tool_calls") or []
    if message.get("content") or not calls:
        logprobs = (call.answer.client_logprobs or {}).get("content") or []
        text = {"type": "output_text", "text": message.get("content") or "", "annotations": [], "logprobs": logprobs}
        yield {"id": f"msg_{key}", "type": "message", "role": "assistant", "status": status, "content": [text]}
    for n, one in enumerate(calls):
        told = {"call_id": one["id"], **one["function"], "status": status}
        yield {"id": f"fc_{key}_{n}", "type": "function_call", **told}


def _message(call: Recorded) -> Message:
    assert call.answer is not None
    assert call.answer.message is not None
    return call.answer.message
