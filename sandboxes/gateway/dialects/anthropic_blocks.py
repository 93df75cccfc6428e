"""Anthropic's content blocks, both ways: messages to turns, a recorded call to blocks.

A `tool_use` block holds its arguments as an object; the model wrote them as text. On the way back the text comes from the
recorded turn that has the block's id, so that nothing of it is lost: spaces, escapes, the way a number is written.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sandboxes.gateway.dialects.wire import checked, tagged
from sandboxes.gateway.errors import BadRequest
from sandboxes.gateway.sessions.recorded import Message, Recorded
from sandboxes.gateway.sessions.sessions import Session

# A system block of Claude Code's: a hash that changes with every request, for the bill and not for the model.
BILLING = "x-anthropic-billing-header"


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class CacheControl(Strict):
    """Accepted everywhere, without effect."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class Text(Strict):
    type: Literal["text"]
    text: str
    citations: list[None] | None = Field(default=None, max_length=0)
    cache_control: CacheControl | None = None
    parsed_output: Any = None  # added by the SDK's `parse` and `stream` helpers


class ToolUse(Strict):
    type: Literal["tool_use"]
    id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    input: dict[str, Any]
    caller: dict[str, Any] | None = None  # echoed
    toolset_name: None = None
    cache_control: CacheControl | None = None


class ToolResult(Strict):
    type: Literal["tool_result"]
    tool_use_id: str = Field(min_length=1)
    content: str | list[dict[str, Any]] | None = None
    is_error: bool | None = None
    toolset_name: None = None
    cache_control: CacheControl | None = None


class Thinking(Strict):
    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class Tool(Strict):
    """A client tool."""

    name: str = Field(min_length=1)
    input_schema: dict[str, Any]
    description: str | None = None
    type: Literal["custom"] | None = None
    strict: bool | None = None
    eager_input_streaming: bool | None = None  # a hint on when input is streamed; here it comes when it is whole
    cache_control: CacheControl | None = None

    def plain(self) -> Message:
        """As it is rendered and recorded: Chat Completions' form."""
        given = {"name": self.name, "description": self.description, "parameters": self.input_schema}
        function = {**given, "strict": self.strict}
        return {"type": "function", "function": {name: value for name, value in function.items() if value is not None}}


class Turn(Strict):
    role: Literal["user", "assistant", "system"]
    content: str | list[dict[str, Any]]


TEXTS: dict[str, type[BaseModel]] = {"text": Text}
BLOCKS: dict[str, dict[str, type[BaseModel]]] = {
    "system": TEXTS,
    "user": {"text": Text, "tool_result": ToolResult},
    "assistant": {"text": Text, "tool_use": ToolUse, "thinking": Thinking},
}


def turns(messages: Sequence[Any], session: Session) -> list[Message]:
    """The conversation. BadRequest names the block that is not served."""
    said: list[Message] = []
    for n, raw in enumerate(messages):
        where = f"messages.{n}"
        turn = checked(raw, Turn, where)
        shapes = BLOCKS[turn.role]
        given = [{"type": "text", "text": turn.content}] if isinstance(turn.content, str) else turn.content
        blocks = [tagged(block, shapes, f"{where}.content.{m}") for m, block in enumerate(given)]
        if turn.role == "assistant":
            said.append(_assistant(blocks, session))
        else:
            said += _others(turn.role, blocks, where)
    if said[-1]["role"] == "assistant":
        raise BadRequest("the last of `messages` is the assistant's: continuing it is not served", param="messages")
    return said


def joined(content: str | Sequence[Any], where: str) -> str:
    """The text of a content that is text or a list of text blocks."""
    if isinstance(content, str):
        return content
    blocks = [tagged(block, TEXTS, f"{where}.{n}") for n, block in enumerate(content)]
    return "".join(block.text for block in blocks)


def system(given: str | Sequence[Any]) -> list[Message]:
    """The system turn, where there is one."""
    blocks: list[Any] = [{"type": "text", "text": given}] if isinstance(given, str) else list(given)
    text = joined([block for block in blocks if not str(block.get("text", "")).startswith(BILLING)], "system")
    return [{"role": "system", "content": text}] if text else []


def content(call: Recorded) -> list[dict[str, Any]]:
    """The blocks of a recorded answer; one, empty, where it says nothing."""
    return list(_blocks(call))


def _blocks(call: Recorded) -> Iterator[dict[str, Any]]:
    assert call.answer is not None
    assert call.answer.message is not None
    message = call.answer.message
    calls = message.get("tool_calls") or []
    if message.get("reasoning"):
        # Clients send thinking back only with a signature; nothing here needs one, so it is the call's id.
        yield {"type": "thinking", "thinking": message["reasoning"], "signature": call.intent.call_id}
    if message.get("content") or not calls:
        yield {"type": "text", "text": message.get("content") or ""}
    for one in calls:
        function = one["function"]
        yield {"type": "tool_use", "id": one["id"], "name": function["name"], "input": _object(function["arguments"])}


def _object(arguments: str) -> dict[str, Any]:
    """Arguments as an object. Where JSON has no form for it (a number too large, half a surrogate pair): the text."""
    value: dict[str, Any] = json.loads(arguments)
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        return {"arguments": arguments}
    return value


def _assistant(blocks: Sequence[BaseModel], session: Session) -> Message:
    message: Message = {"role": "assistant", "content": None}
    for block in blocks:
        match block:
            case Text():
                message["content"] = (message["content"] or "") + block.text
            case Thinking():
                message["reasoning"] = message.get("reasoning", "") + block.thinking
            case ToolUse():
                function = {"name": block.name, "arguments": _arguments(block, session)}
                call = {"id": block.id, "type": "function", "function": function}
                message.setdefault("tool_calls", []).append(call)
    if not message.get("tool_calls"):
        message["content"] = message["content"] or ""
    return message


def _arguments(block: ToolUse, session: Session) -> str:
    """The arguments as the model wrote them, where this is a recorded call; else as JSON."""
    for call in reversed(session.calls):
        message: Mapping[str, Any] = (call.answer.message if call.answer else None) or {}
        for one in message.get("tool_calls") or []:
            function = one["function"]
            if one["id"] == block.id and function["name"] == block.name:
                if _object(function["arguments"]) == block.input:
                    return str(function["arguments"])
                break
    return json.dumps(block.input, ensure_ascii=False)


def _others(role: str, blocks: Sequence[BaseModel], where: str) -> Iterator[Message]:
    """A user's or system's message: text in a row is one turn, each tool result is one."""
    text: str | None = None if blocks else ""
    for n, block in enumerate(blocks):
        if isinstance(block, ToolResult):
            if text is not None:
                yield {"role": role, "content": text}
            text = None
            yield {"role": "tool", "content": _result(block, f"{where}.content.{n}"), "tool_call_id": block.tool_use_id}
        elif isinstance(block, Text):
            text = (text or "") + block.text
    if text is not None:
        yield {"role": role, "content": text}


def _result(block: ToolResult, where: str) -> str:
    """What the tool said. Templates have no mark for a failure, so the text says it."""
    said = joined(block.content or "", f"{where}.content")
    failed = block.is_error and not said.lower().startswith("error")
    return f"Error: {said}" if failed else said
