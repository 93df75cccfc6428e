"""Anthropic Messages: request to `calls.Request`, recorded call to message or events.

Spec: platform.claude.com/docs/en/api/messages. What is not listed here is refused by name. Accepted and without effect:

* `cache_control`: the engine keeps every prefix it has computed, there is nothing to mark;
* `anthropic-beta`: a flag only lets parameters and blocks in, and those are checked where they are used;
* `metadata`, `service_tier`: for the provider's records and billing.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sandboxes.gateway.calls.request import Request
from sandboxes.gateway.dialects.anthropic_blocks import CacheControl, Strict, Tool, content, system, turns
from sandboxes.gateway.dialects.base import Asked
from sandboxes.gateway.dialects.wire import check_model, decode, event, origin, thinking
from sandboxes.gateway.errors import BadRequest, GatewayError
from sandboxes.gateway.sessions.flight import Part
from sandboxes.gateway.sessions.recorded import Conversation, Message, Recorded
from sandboxes.gateway.sessions.sessions import Session

# The versions whose requests and events are as they are here. The later one has no sampling parameters; they are served
# all the same, since a policy is sampled as its trainer says.
VERSIONS = ("2023-06-01", "2026-10-21")
KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class ToolChoice(Strict):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False

    def plain(self) -> str | Message:
        """In Chat Completions' form."""
        if self.type == "tool":
            if not self.name:
                raise BadRequest("`tool_choice` of type tool needs `name`", param="tool_choice.name")
            return {"type": "function", "function": {"name": self.name}}
        return "required" if self.type == "any" else self.type


class Metadata(Strict):
    user_id: str | None = None


class ThinkingOff(Strict):
    type: Literal["disabled"]


class ThinkingOn(Strict):
    type: Literal["adaptive"]
    display: Literal["summarized"] | None = None  # the thinking itself is told


class ThinkingBudget(Strict):
    type: Literal["enabled"]
    budget_tokens: int = Field(ge=1)
    display: Literal["summarized"] | None = None


class JSONFormat(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Strict):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JSONFormat | None = None


class CountRequest(BaseModel):
    """What a prompt is made of: the parameters of `/v1/messages/count_tokens`."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    model: str
    messages: list[dict[str, Any]] = Field(min_length=1)
    system: str | list[dict[str, Any]] | None = None
    tools: list[Tool] = []
    tool_choice: ToolChoice | None = None
    thinking: Annotated[ThinkingOff | ThinkingOn | ThinkingBudget, Field(discriminator="type")] | None = None
    output_config: OutputConfig | None = None
    cache_control: CacheControl | None = None

    def conversation(self, session: Session) -> Conversation:
        """The turns, tools and template options. BadRequest names the block at fault."""
        effort = self.output_config.effort if self.output_config else None
        options = thinking(effort)
        if self.thinking is not None:
            options["enable_thinking"] = self.thinking.type != "disabled"
        return Conversation(
            system(self.system or "") + turns(self.messages, session),
            [tool.plain() for tool in self.tools],
            self.tool_choice.plain() if self.tool_choice else "auto",
            options,
        )


class MessagesRequest(CountRequest):
    """The parameters that are served. Bounds of sampling parameters are the engine's to check."""

    max_tokens: int = Field(ge=1)
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    metadata: Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None

    def sampling(self) -> dict[str, Any]:
        """What the client set, in the engine's names."""
        given: dict[str, Any] = {
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "stop": self.stop_sequences or None,
        }
        if self.tool_choice and self.tool_choice.disable_parallel_tool_use:
            given["parallel_tool_calls"] = False
        if isinstance(self.thinking, ThinkingBudget):
            given["thinking_token_budget"] = self.thinking.budget_tokens
        if self.output_config and self.output_config.format:
            schema = {"name": "output", "schema": self.output_config.format.schema_}
            given["response_format"] = {"type": "json_schema", "json_schema": schema}
        return {name: value for name, value in given.items() if value is not None}


class ErrorDetail(Strict):
    type: str
    message: str


class MessagesError(Strict):
    type: Literal["error"]
    error: ErrorDetail


class Messages:
    """The dialect of `/v1/messages`."""

    name = "messages"
    shape = MessagesRequest
    errors = MessagesError

    def parse(self, raw: bytes, headers: Mapping[str, str], session: Session, model: str) -> Asked:
        """The call that a body asks for. BadRequest names the parameter at fault."""
        check_version(headers)
        body = decode(raw, MessagesRequest)
        check_model(body.model, model)
        request = Request(
            body.conversation(session),
            body.sampling(),
            **origin(raw, headers),
            stream=bool(body.stream),
            stop=body.stop_sequences or [],
            id_prefix="msg_",
        )
        return Asked(
            request,
            lambda calls: message(calls[0], body.model),
            (lambda calls: MessageEvents(calls[0], body.model)) if body.stream else None,
        )

    def counted(self, raw: bytes, headers: Mapping[str, str], session: Session, model: str) -> Conversation:
        """The conversation whose tokens a body of `/v1/messages/count_tokens` asks for."""
        check_version(headers)
        body = decode(raw, CountRequest)
        check_model(body.model, model)
        return body.conversation(session)

    def error(self, error: GatewayError) -> dict[str, Any]:
        """Anthropic's error body. It has no place for a parameter's name, so the text must say it."""
        named = error.param is None or error.param in error.message
        text = error.message if named else f"{error.param}: {error.message}"
        return {"type": "error", "error": {"type": KINDS.get(error.status, "api_error"), "message": text}}


def check_version(headers: Mapping[str, str]) -> None:
    """BadRequest where a client wants another version of the API than the one that is spoken here."""
    version = headers.get("anthropic-version", VERSIONS[0])
    if version not in VERSIONS:
        served = ", ".join(VERSIONS)
        raise BadRequest(f"anthropic-version {version!r} is not served; served: {served}", param="anthropic-version")


def message(call: Recorded, model: str) -> dict[str, Any]:
    """The answer in one piece."""
    return {**_head(call, model), "content": content(call), **_stopped(call), "usage": _usage(call)}


class MessageEvents:
    """Server-sent events of one message, as Anthropic's SDK puts them together: block by block, none beside another."""

    def __init__(self, call: Recorded, model: str) -> None:
        self._head = {**_head(call, model), "content": [], "stop_reason": None, "stop_sequence": None}
        self._head["usage"] = {**_usage(call), "output_tokens": 0}
        self._open: str | None = None  # the kind of the block that is open
        self._index = -1
        self._sent: dict[str, int] = {}  # by kind, in characters

    def first(self) -> Iterator[bytes]:
        """The message, begun, and a ping, as the original sends one."""
        yield _event("message_start", message=self._head)
        yield _event("ping")

    def part(self, part: Part) -> Iterator[bytes]:
        """A part of the thinking or the text."""
        if part.text:
            yield from self._text("thinking" if part.kind == "reasoning" else "text", part.text)

    def last(self, calls: Sequence[Recorded]) -> Iterator[bytes]:
        """Everything after the streamed parts: the whole answer, where it is given again out of the journal."""
        for block in content(calls[0]):
            kind = block["type"]
            if kind == "tool_use":
                yield from self._start({**block, "input": {}})
                yield self._delta({"type": "input_json_delta", "partial_json": json.dumps(block["input"])})
                continue
            yield from self._text(kind, block[kind][self._sent.get(kind, 0) :])
        yield from self._stop()
        yield _event("message_delta", delta=_stopped(calls[0]), usage=_usage(calls[0]))
        yield _event("message_stop")

    def error(self, error: GatewayError) -> Iterator[bytes]:
        """An error after the stream began."""
        yield event(Messages().error(error), "error")

    def _text(self, kind: str, text: str) -> Iterator[bytes]:
        if kind not in self._sent:
            yield from self._start({"type": kind, kind: "", **({"signature": ""} if kind == "thinking" else {})})
            self._sent[kind] = 0
        if text:
            self._sent[kind] += len(text)
            yield self._delta({"type": f"{kind}_delta", kind: text})

    def _start(self, block: dict[str, Any]) -> Iterator[bytes]:
        """Open a block, closing the one before it."""
        yield from self._stop()
        self._index += 1
        self._open = block["type"]
        yield _event("content_block_start", index=self._index, content_block=block)

    def _stop(self) -> Iterator[bytes]:
        if self._open == "thinking":
            yield self._delta({"type": "signature_delta", "signature": self._head["id"]})
        if self._open is not None:
            yield _event("content_block_stop", index=self._index)
        self._open = None

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)


def _event(name: str, /, **told: Any) -> bytes:
    return event({"type": name, **told}, name)


def _head(call: Recorded, model: str) -> dict[str, Any]:
    return {"id": call.intent.call_id, "type": "message", "role": "assistant", "model": model}


def _stopped(call: Recorded) -> dict[str, Any]:
    """Why it stopped. A cut wins over a call in it, which would be told as `tool_use` and run."""
    answer = call.answer
    assert answer is not None
    if answer.finish_reason == "length":
        return {"stop_reason": "max_tokens", "stop_sequence": None}
    if answer.finish_reason == "tool_calls":
        return {"stop_reason": "tool_use", "stop_sequence": None}
    why = "stop_sequence" if answer.stop_sequence is not None else "end_turn"
    return {"stop_reason": why, "stop_sequence": answer.stop_sequence}


def _usage(call: Recorded) -> dict[str, int]:
    return {
        "input_tokens": len(call.intent.prompt_token_ids),
        "output_tokens": len(call.answer.completion_token_ids) if call.answer else 0,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
