"""OpenAI Chat Completions: request to `calls.Request`, recorded call to completion or chunks.

Spec: platform.openai.com/docs/api-reference/chat. What is not listed here is refused by name.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandboxes.gateway.calls import Request
from sandboxes.gateway.errors import BadRequest, NotFound
from sandboxes.gateway.facts import Conversation
from sandboxes.gateway.recorded import Message, Recorded

SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "max_tokens", "max_completion_tokens", "logprobs", "top_logprobs",
)  # fmt: skip


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["text"]
    text: str


class CalledFunction(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1)
    arguments: str


class ToolCall(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None  # left over where a client put streamed deltas together


class ChatMessage(BaseModel):
    """A turn. The fields that must be null are those which SDKs echo from an answer."""

    model_config = ConfigDict(extra="forbid")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    refusal: None = None
    audio: None = None
    function_call: None = None
    annotations: list[None] | None = Field(default=None, max_length=0)
    reasoning: str | None = None  # echoed; templates decide about reasoning, not clients
    reasoning_content: str | None = None

    def plain(self) -> Message:
        """The turn as it is rendered, compared and recorded."""
        content = self.content if isinstance(self.content, str | None) else "".join(part.text for part in self.content)
        message: Message = {"role": self.role, "content": content}
        if self.name is not None:
            message["name"] = self.name
        if self.tool_call_id is not None:
            message["tool_call_id"] = self.tool_call_id
        if self.tool_calls:
            message["tool_calls"] = [call.model_dump(exclude={"index"}) for call in self.tool_calls]
        return message


class FunctionSchema(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: Literal[False] | None = None


class Tool(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["function"]
    function: FunctionSchema


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    include_usage: bool = False


class TextFormat(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["text"]


class ChatRequest(BaseModel):
    """The parameters that are served. Bounds of sampling parameters are the engine's to check."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    model: str
    messages: list[ChatMessage] = Field(min_length=1)
    tools: list[Tool] = []
    tool_choice: Literal["auto", "none"] | None = None
    parallel_tool_calls: Literal[True] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    n: Literal[1] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    response_format: TextFormat | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    chat_template_kwargs: dict[str, Any] = {}
    user: str | None = None  # a label for the provider's records; it shapes no answer
    demonstration: ChatMessage | None = None


def parse(raw: bytes, headers: Mapping[str, str], model: str) -> tuple[ChatRequest, Request]:
    """The validated body and the call it asks for. BadRequest names the parameter at fault."""
    body = _validated(raw)
    if body.model != model:
        raise NotFound(
            f"model {body.model!r} is not served here; this gateway serves {model!r}",
            param="model",
            code="model_not_found",
        )
    if body.top_logprobs is not None and not body.logprobs:
        raise BadRequest("`top_logprobs` needs `logprobs: true`", param="top_logprobs")
    conversation = Conversation(
        [message.plain() for message in body.messages],
        [tool.model_dump(exclude_none=True) for tool in body.tools],
        body.tool_choice or "auto",
        body.chat_template_kwargs,
    )
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    sampling = {name: getattr(body, name) for name in SAMPLING if getattr(body, name) is not None}
    return body, Request(
        conversation,
        {**sampling, "stop": stop} if stop else sampling,
        hashlib.sha256(raw).hexdigest(),
        stream=bool(body.stream),
        demonstration=_assistant(body.demonstration),
        logprobs=bool(body.logprobs),
        stop=stop,
        idempotency_key=headers.get("idempotency-key"),
        is_retry=headers.get("x-stainless-retry-count", "0") not in ("", "0"),
    )


def completion(call: Recorded, model: str) -> dict[str, Any]:
    """The answer in one piece."""
    answer = call.answer
    assert answer is not None
    choice = {
        "index": 0,
        "message": answer.message,
        "finish_reason": answer.finish_reason,
        "logprobs": answer.client_logprobs,
    }
    return {
        **_head(call.intent.call_id, "chat.completion", int(call.intent.started_at.timestamp()), model),
        "choices": [choice],
        "usage": usage(call),
    }


def usage(call: Recorded) -> dict[str, int]:
    """Token counts of a call."""
    assert call.answer is not None
    prompt, sampled = len(call.intent.prompt_token_ids), len(call.answer.completion_token_ids)
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}


class Chunks:
    """Server-sent events of one answer, as OpenAI's SDK puts them together: role first, a tool call's id and name
    before its arguments, the finish reason alone, then the usage where it was asked for."""

    def __init__(self, stream_id: str, created: int, model: str, *, include_usage: bool) -> None:
        self._head = _head(stream_id, "chat.completion.chunk", created, model)
        self._include_usage = include_usage
        self._said_role = False
        self._sent = 0

    def content(self, text: str) -> bytes:
        """A part of the content."""
        self._sent += len(text)
        return self._delta({"content": text})

    def last(self, call: Recorded) -> Iterator[bytes]:
        """Everything after the streamed parts: the whole answer, where it is given again out of the journal."""
        answer = call.answer
        assert answer is not None
        assert answer.message is not None
        rest = (answer.message.get("content") or "")[self._sent :]
        if rest:
            yield self.content(rest)
        for index, tool_call in enumerate(answer.message.get("tool_calls") or []):
            name, arguments = tool_call["function"]["name"], tool_call["function"]["arguments"]
            opened = {
                "index": index,
                "id": tool_call["id"],
                "type": "function",
                "function": {"name": name, "arguments": ""},
            }
            yield self._delta({"tool_calls": [opened]})
            yield self._delta({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})
        if answer.client_logprobs is not None:
            yield self._delta({}, logprobs=answer.client_logprobs)
        yield self._delta({}, finish_reason=answer.finish_reason)
        if self._include_usage:
            yield _event({**self._head, "choices": [], "usage": usage(call)})
        yield b"data: [DONE]\n\n"

    def _delta(self, delta: Message, *, finish_reason: str | None = None, logprobs: Message | None = None) -> bytes:
        if not self._said_role:
            delta = {"role": "assistant", **delta}
            self._said_role = True
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": logprobs}
        return _event({**self._head, "choices": [choice], **({"usage": None} if self._include_usage else {})})


def error_event(body: Mapping[str, Any]) -> bytes:
    """An error after the stream began."""
    return _event(body)


def _event(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def _head(identifier: str, kind: str, created: int, model: str) -> dict[str, Any]:
    return {"id": identifier, "object": kind, "created": created, "model": model}


def _assistant(message: ChatMessage | None) -> Message | None:
    if message is None:
        return None
    if message.role != "assistant":
        raise BadRequest(f"`demonstration` is an assistant message, not {message.role!r}", param="demonstration")
    plain = message.plain()
    if not plain.get("tool_calls"):
        plain["content"] = plain["content"] or ""
    return plain


def _validated(raw: bytes) -> ChatRequest:
    try:
        body = json.loads(raw, parse_constant=_no_constant)
        json.dumps(body, ensure_ascii=False).encode()  # half a surrogate pair is valid JSON but no text
    except ValueError as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from error
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    try:
        return ChatRequest.model_validate(body)
    except ValidationError as error:
        # Of a union's complaints the deepest is about the alternative that was meant.
        worst = max(error.errors(), key=lambda one: (len(one["loc"]), one["type"] == "extra_forbidden"))
        where = ".".join(str(step) for step in worst["loc"] if "[" not in str(step)) or "body"
        text = f"Unknown parameter: '{where}'" if worst["type"] == "extra_forbidden" else f"'{where}': {worst['msg']}"
        served = f" (served parameters: {', '.join(ChatRequest.model_fields)})" if len(worst["loc"]) == 1 else ""
        raise BadRequest(text + served, param=where) from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
