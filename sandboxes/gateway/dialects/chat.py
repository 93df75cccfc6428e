"""OpenAI Chat Completions: request to `calls.Request`, recorded call to completion or chunks.

Spec: platform.openai.com/docs/api-reference/chat. What is not listed here is refused by name.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sandboxes.gateway.calls.request import Request
from sandboxes.gateway.dialects.base import Asked
from sandboxes.gateway.dialects.sampling import SampledRequest
from sandboxes.gateway.dialects.wire import check_model, decode, event, origin
from sandboxes.gateway.errors import BadRequest, ErrorBody, GatewayError
from sandboxes.gateway.sessions.flight import Kind, Part
from sandboxes.gateway.sessions.recorded import Conversation, Message, Recorded
from sandboxes.gateway.sessions.sessions import Session

FIELDS: dict[Kind, str] = {"reasoning": "reasoning_content", "content": "content"}  # in the order they are said


class TextPart(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["text"]
    text: str


class CalledFunction(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1)
    arguments: str
    parsed_arguments: Any = None  # OpenAI's stream and parse helpers send back what they read out of `arguments`


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
    parsed: Any = None  # as `parsed_arguments`, of the content
    reasoning: str | None = None  # as an answer of ours or of vLLM names it; the template decides whether it is shown
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
            message["tool_calls"] = [
                call.model_dump(exclude={"index": True, "function": {"parsed_arguments"}}) for call in self.tool_calls
            ]
        reasoning = self.reasoning_content or self.reasoning
        if reasoning and self.role == "assistant":
            message["reasoning"] = reasoning
        return message


class FunctionSchema(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["function"]
    function: FunctionSchema


class FunctionName(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1)


class NamedTool(BaseModel):
    """The one function that must be called."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["function"]
    function: FunctionName


class TextFormat(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["text"]


class JsonFormat(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["json_object"]


class JsonSchema(BaseModel):
    """A schema with its name. `strict` changes nothing: the engine's grammar always holds the answer to the schema."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1)
    description: str | None = None
    body: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class SchemaFormat(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["json_schema"]
    json_schema: JsonSchema


class ChatRequest(SampledRequest):
    """The parameters that are served. Bounds of sampling parameters are the engine's to check."""

    messages: list[ChatMessage] = Field(min_length=1)
    tools: list[Tool] = Field(default_factory=list)
    tool_choice: Literal["auto", "none", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    max_completion_tokens: int | None = None
    n: int | None = Field(default=None, ge=1, le=128)
    logprobs: bool | None = None
    top_logprobs: int | None = None
    response_format: TextFormat | JsonFormat | SchemaFormat | None = None
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
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
            body.tool_choice.model_dump() if isinstance(body.tool_choice, NamedTool) else body.tool_choice or "auto",
            body.chat_template_kwargs,
        )
        request = Request(
            conversation,
            _sampling(body),
            **origin(raw, headers),
            stream=bool(body.stream),
            demonstration=_assistant(body.demonstration),
            logprobs=bool(body.logprobs),
            stop=body.stops,
            n=body.n or 1,
        )
        return Asked(
            request,
            lambda calls: completion(calls, body.model),
            (lambda calls: Chunks(calls[0], body.model, include_usage=body.include_usage)) if body.stream else None,
        )

    def error(self, error: GatewayError) -> dict[str, Any]:
        """OpenAI's error body."""
        return error.body


def completion(calls: Sequence[Recorded], model: str) -> dict[str, Any]:
    """The answer in one piece."""
    choices = []
    for index, call in enumerate(calls):
        assert call.answer is not None
        assert call.answer.message is not None
        choice = {
            "index": index,
            "message": _told(call.answer.message),
            "finish_reason": call.answer.finish_reason,
            "logprobs": call.answer.client_logprobs,
        }
        call_id = _rewardable(call, calls)
        choices.append({**choice, "call_id": call_id} if call_id else choice)
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
        # By choice: characters of each kind of text, and log-probs. A choice that is in here has its role.
        self._sent: dict[int, dict[Kind, int]] = {}
        self._sent_logprobs: dict[int, int] = {}

    def first(self) -> Iterator[bytes]:
        """Nothing: the role comes with the first delta."""
        yield from ()

    def part(self, part: Part) -> Iterator[bytes]:
        """A part of the reasoning or of the content."""
        delta = {FIELDS[part.kind]: part.text} if part.text else {}
        logprobs = {"content": list(part.logprobs)} if part.logprobs else None
        yield self._delta(part.choice, delta, logprobs=logprobs)
        self._sent[part.choice][part.kind] += len(part.text)
        self._sent_logprobs[part.choice] += len(part.logprobs)

    def last(self, calls: Sequence[Recorded]) -> Iterator[bytes]:
        """Everything after the streamed parts: the whole answer, where it is given again out of the journal."""
        for index, call in enumerate(calls):
            yield from self._rest(index, call, calls)
        if self._include_usage:
            yield event({**self._head, "choices": [], "usage": usage(calls)})
        yield b"data: [DONE]\n\n"

    def error(self, error: GatewayError) -> Iterator[bytes]:
        """An error after the stream began."""
        yield event(error.body)

    def _rest(self, choice: int, call: Recorded, calls: Sequence[Recorded]) -> Iterator[bytes]:
        answer = call.answer
        assert answer is not None
        assert answer.message is not None
        for kind in FIELDS:
            rest = (answer.message.get(kind) or "")[self._sent.get(choice, {}).get(kind, 0) :]
            if rest:
                yield from self.part(Part(rest, choice, kind))
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
        logprobs = ((answer.client_logprobs or {}).get("content") or [])[self._sent_logprobs.get(choice, 0) :]
        if logprobs:
            yield from self.part(Part("", choice, logprobs=tuple(logprobs)))
        yield self._delta(choice, {}, finish_reason=answer.finish_reason, call_id=_rewardable(call, calls))

    def _delta(
        self,
        choice: int,
        delta: Message,
        *,
        finish_reason: str | None = None,
        logprobs: Message | None = None,
        call_id: str | None = None,
    ) -> bytes:
        if choice not in self._sent:
            delta = {"role": "assistant", **delta}
            self._sent[choice] = dict.fromkeys(FIELDS, 0)
            self._sent_logprobs[choice] = 0
        told = {"index": choice, "delta": delta, "finish_reason": finish_reason, "logprobs": logprobs}
        if call_id:
            told["call_id"] = call_id
        return event({**self._head, "choices": [told], **({"usage": None} if self._include_usage else {})})


def _head(call: Recorded, kind: str, model: str) -> dict[str, Any]:
    created = int(call.intent.started_at.timestamp())
    return {"id": call.intent.call_id, "object": kind, "created": created, "model": model}


def _sampling(body: ChatRequest) -> dict[str, Any]:
    """What the client set, in the engine's names, which are OpenAI's."""
    sampling = body.given("max_tokens", "max_completion_tokens", "logprobs", "top_logprobs")
    if body.response_format is not None and body.response_format.type != "text":
        sampling["response_format"] = body.response_format.model_dump(by_alias=True, exclude_none=True)
    if body.parallel_tool_calls is not None and body.tools:
        sampling["parallel_tool_calls"] = body.parallel_tool_calls
    return sampling


def _told(message: Message) -> Message:
    """A message in the names that clients know."""
    return {FIELDS["reasoning"] if name == "reasoning" else name: value for name, value in message.items()}


def _rewardable(call: Recorded, calls: Sequence[Recorded]) -> str | None:
    """The id that a choice is rewarded by, where there are several: the answer's own names the first one only."""
    return call.intent.call_id if len(calls) > 1 else None


def _assistant(message: ChatMessage | None) -> Message | None:
    if message is None:
        return None
    if message.role != "assistant":
        raise BadRequest(f"`demonstration` is an assistant message, not {message.role!r}", param="demonstration")
    plain = message.plain()
    if not plain.get("tool_calls"):
        plain["content"] = plain["content"] or ""
    return plain
