"""OpenAI Chat Completions: request to `calls.Request`, recorded call to completion or chunks.

Spec: platform.openai.com/docs/api-reference/chat. What is not listed here is refused by name.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sandboxes.gateway.calls import Part, Request
from sandboxes.gateway.dialects.base import Asked
from sandboxes.gateway.dialects.wire import check_model, decode, event, origin
from sandboxes.gateway.errors import BadRequest, GatewayError
from sandboxes.gateway.facts import Conversation
from sandboxes.gateway.recorded import Message, Recorded
from sandboxes.gateway.endpoints import ErrorBody
from sandboxes.gateway.sessions import Session

SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "max_tokens", "max_completion_tokens", "logprobs", "top_logprobs",
)  # fmt: skip


class TextPart(BaseModel):
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
    content: str | list[TextPart] | None = None
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


class Chat:
    """The dialect of `/v1/chat/completions`."""

    name = "chat"
    shape = ChatRequest
    errors = ErrorBody

    def parse(self, raw: bytes, headers: Mapping[str, str], session: Session, model: str) -> Asked:
        """The call that a body asks for. BadRequest names the parameter at fault."""
        body = decode(raw, ChatRequest)
        check_model(body.model, model)
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
        request = Request(
            conversation,
            {**sampling, "stop": stop} if stop else sampling,
            **origin(raw, headers),
            stream=bool(body.stream),
            demonstration=_assistant(body.demonstration),
            logprobs=bool(body.logprobs),
            stop=stop,
        )
        include_usage = bool(body.stream_options and body.stream_options.include_usage)
        return Asked(
            request,
            lambda calls: completion(calls, body.model),
            (lambda calls: Chunks(calls[0], body.model, include_usage=include_usage)) if body.stream else None,
        )

    def error(self, error: GatewayError) -> dict[str, Any]:
        """OpenAI's error body."""
        return error.body


def completion(calls: Sequence[Recorded], model: str) -> dict[str, Any]:
    """The answer in one piece."""
    choices = []
    for index, call in enumerate(calls):
        assert call.answer is not None
        choices.append(
            {
                "index": index,
                "message": call.answer.message,
                "finish_reason": call.answer.finish_reason,
                "logprobs": call.answer.client_logprobs,
            }
        )
    return {**_head(calls[0], "chat.completion", model), "choices": choices, "usage": usage(calls)}


def usage(calls: Sequence[Recorded]) -> dict[str, int]:
    """Token counts: the prompt once, the completions together."""
    prompt, sampled = len(calls[0].intent.prompt_token_ids), 0
    for call in calls:
        assert call.answer is not None
        sampled += len(call.answer.completion_token_ids)
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}


class Chunks:
    """Server-sent events of one answer, as OpenAI's SDK puts them together: role first, a tool call's id and name
    before its arguments, the finish reason alone, then the usage where it was asked for."""

    def __init__(self, call: Recorded, model: str, *, include_usage: bool) -> None:
        self._head = _head(call, "chat.completion.chunk", model)
        self._include_usage = include_usage
        self._sent: dict[int, int] = {}  # by choice, in characters; a choice that is in here has its role

    def first(self) -> Iterator[bytes]:
        """Nothing: the role comes with the first delta."""
        yield from ()

    def part(self, part: Part) -> Iterator[bytes]:
        """A part of the content."""
        yield self._delta(part.choice, {"content": part.text})
        self._sent[part.choice] += len(part.text)

    def last(self, calls: Sequence[Recorded]) -> Iterator[bytes]:
        """Everything after the streamed parts: the whole answer, where it is given again out of the journal."""
        for index, call in enumerate(calls):
            yield from self._rest(index, call)
        if self._include_usage:
            yield event({**self._head, "choices": [], "usage": usage(calls)})
        yield b"data: [DONE]\n\n"

    def error(self, error: GatewayError) -> Iterator[bytes]:
        """An error after the stream began."""
        yield event(error.body)

    def _rest(self, choice: int, call: Recorded) -> Iterator[bytes]:
        answer = call.answer
        assert answer is not None
        assert answer.message is not None
        rest = (answer.message.get("content") or "")[self._sent.get(choice, 0) :]
        if rest:
            yield from self.part(Part(rest, choice))
        for index, tool_call in enumerate(answer.message.get("tool_calls") or []):
            name, arguments = tool_call["function"]["name"], tool_call["function"]["arguments"]
            opened = {
                "index": index,
                "id": tool_call["id"],
                "type": "function",
                "function": {"name": name, "arguments": ""},
            }
            yield self._delta(choice, {"tool_calls": [opened]})
            yield self._delta(choice, {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})
        if answer.client_logprobs is not None:
            yield self._delta(choice, {}, logprobs=answer.client_logprobs)
        yield self._delta(choice, {}, finish_reason=answer.finish_reason)

    def _delta(
        self, choice: int, delta: Message, *, finish_reason: str | None = None, logprobs: Message | None = None
    ) -> bytes:
        if choice not in self._sent:
            delta = {"role": "assistant", **delta}
            self._sent[choice] = 0
        told = {"index": choice, "delta": delta, "finish_reason": finish_reason, "logprobs": logprobs}
        return event({**self._head, "choices": [told], **({"usage": None} if self._include_usage else {})})


def _head(call: Recorded, kind: str, model: str) -> dict[str, Any]:
    created = int(call.intent.started_at.timestamp())
    return {"id": call.intent.call_id, "object": kind, "created": created, "model": model}


def _assistant(message: ChatMessage | None) -> Message | None:
    if message is None:
        return None
    if message.role != "assistant":
        raise BadRequest(f"`demonstration` is an assistant message, not {message.role!r}", param="demonstration")
    plain = message.plain()
    if not plain.get("tool_calls"):
        plain["content"] = plain["content"] or ""
    return plain
