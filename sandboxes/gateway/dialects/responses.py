"""OpenAI Responses: request to `calls.Request`, recorded call to response or events.

Spec: platform.openai.com/docs/api-reference/responses. What is not listed here is refused by name: hosted tools,
conversations and background responses are OpenAI's own services. A response is made from its recorded call alone
(`Intent.kept` holds what it repeats of the request), so one that a restarted gateway tells is the same.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from sandboxes.gateway.calls.request import Request
from sandboxes.gateway.dialects.base import Asked
from sandboxes.gateway.dialects.responses_events import ResponseEvents
from sandboxes.gateway.dialects.responses_items import PREFIX, Strict, Turns, output
from sandboxes.gateway.dialects.wire import Off, check_model, decode, origin, thinking
from sandboxes.gateway.errors import BadRequest, ErrorBody, GatewayError, NotFound
from sandboxes.gateway.sessions.recorded import Conversation, Message, Recorded
from sandboxes.gateway.sessions.sessions import Session


def _only_functions(tool: Any) -> Any:
    if isinstance(tool, dict) and tool.get("type") != "function":
        raise ValueError(f"tools of type {tool.get('type')!r} are not served; served: function")
    return tool


class FunctionTool(Strict):
    type: Literal["function"]
    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def plain(self) -> Message:
        """As it is rendered and recorded: Chat Completions' form."""
        function = self.model_dump(exclude={"type"}, exclude_none=True)
        return {"type": "function", "function": function}


class NamedFunction(Strict):
    type: Literal["function"]
    name: str = Field(min_length=1)


class Format(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_by_name=True, serialize_by_alias=True)

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    description: str | None = None
    strict: bool | None = None


class TextOptions(Strict):
    format: Format | None = None


class ReasoningOptions(Strict):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto"] | None = None  # the reasoning itself is told; nothing writes a summary of it


class StreamOptions(Strict):
    include_obfuscation: Off = False


class ResponsesRequest(BaseModel):
    """The parameters that are served. Bounds of sampling parameters are the engine's to check."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    model: str
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: list[Annotated[FunctionTool, BeforeValidator(_only_functions)]] = []
    tool_choice: Literal["auto", "none", "required"] | NamedFunction = "auto"
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    include: list[Literal["message.output_text.logprobs", "reasoning.encrypted_content"]] | None = None
    metadata: dict[str, str] | None = Field(default=None, max_length=16)
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    truncation: Literal["disabled"] | None = None
    background: Off | None = None
    service_tier: Literal["auto", "default"] | None = None  # there is one
    user: str | None = None  # labels for the provider's records and caches; they shape no answer
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    def sampling(self) -> dict[str, Any]:
        """What the client set, in the engine's names."""
        given = {
            "max_completion_tokens": self.max_output_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "logprobs": self.logprobs or None,
            "top_logprobs": self.top_logprobs,
            "parallel_tool_calls": self.parallel_tool_calls,
            "response_format": self.response_format(),
        }
        return {name: value for name, value in given.items() if value is not None}

    @property
    def logprobs(self) -> bool:
        return "message.output_text.logprobs" in (self.include or [])

    def choice(self) -> str | Message:
        """`tool_choice` in Chat Completions' form."""
        if isinstance(self.tool_choice, NamedFunction):
            return {"type": "function", "function": {"name": self.tool_choice.name}}
        return self.tool_choice

    def response_format(self) -> Message | None:
        """`text.format` in Chat Completions' form; None where it asks for nothing."""
        wanted = self.text.format if self.text else None
        if wanted is None or wanted.type == "text":
            return None
        if wanted.type == "json_object":
            return {"type": "json_object"}
        if wanted.schema_ is None or not wanted.name:
            raise BadRequest("`text.format` of type json_schema needs `name` and `schema`", param="text.format")
        schema = wanted.model_dump(exclude={"type"}, exclude_none=True)
        return {"type": "json_schema", "json_schema": schema}

    def kept(self) -> dict[str, Any]:
        """What a response repeats of its request."""
        return {
            "instructions": self.instructions,
            "previous_response_id": self.previous_response_id,
            "tools": [tool.model_dump() for tool in self.tools],
            "tool_choice": self.model_dump(include={"tool_choice"})["tool_choice"],
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "text": {"format": ((self.text and self.text.format) or Format()).model_dump(exclude_none=True)},
            "reasoning": self.reasoning.model_dump() if self.reasoning else None,
            "max_output_tokens": self.max_output_tokens,
            "temperature": self.temperature if self.temperature is not None else 1.0,
            "top_p": self.top_p if self.top_p is not None else 1.0,
            "top_logprobs": self.top_logprobs or 0,
            "metadata": self.metadata or {},
            "store": self.store is not False,
            "truncation": "disabled",
            "background": False,
            "service_tier": "default",
            "user": self.user,
            "model": self.model,
        }


class Responses:
    """The dialect of `/v1/responses`."""

    name = "responses"
    shape = ResponsesRequest
    errors = ErrorBody

    def parse(self, raw: bytes, headers: Mapping[str, str], session: Session, model: str) -> Asked:
        """The call that a body asks for. BadRequest names the parameter at fault; NotFound for a previous response."""
        body = decode(raw, ResponsesRequest)
        check_model(body.model, model)
        if body.top_logprobs and not body.logprobs:
            raise BadRequest('`top_logprobs` needs `include: ["message.output_text.logprobs"]`', param="top_logprobs")
        conversation = Conversation(
            _messages(body, session),
            [tool.plain() for tool in body.tools],
            body.choice(),
            thinking(body.reasoning.effort if body.reasoning else None),
        )
        request = Request(
            conversation,
            body.sampling(),
            **origin(raw, headers),
            stream=bool(body.stream),
            logprobs=body.logprobs,
            id_prefix=PREFIX,
            kept=body.kept(),
        )
        return Asked(
            request,
            lambda calls: response(calls[0]),
            (lambda calls: ResponseEvents(calls[0], response(calls[0], begun=True), response)) if body.stream else None,
        )

    def error(self, error: GatewayError) -> dict[str, Any]:
        """OpenAI's error body."""
        return error.body


def find(session: Session, response_id: str, *, param: str) -> Recorded:
    """The answered call that was told as this response. NotFound where there is none that was to be stored."""
    for call in session.calls:
        if call.intent.call_id == response_id and call.answered and call.intent.kept.get("store"):
            return call
    raise NotFound(
        f"no response {response_id!r} in this session, or it has no answer, or it was not to be stored",
        param=param,
        code="previous_response_not_found" if param == "previous_response_id" else "response_not_found",
    )


def _messages(body: ResponsesRequest, session: Session) -> list[Message]:
    """The conversation: these instructions, the previous response's turns without its own, then the input."""
    turns = Turns(session)
    if body.instructions:
        turns.messages.append({"role": "system", "content": body.instructions})
    if body.previous_response_id is not None:
        call = find(session, body.previous_response_id, param="previous_response_id")
        assert call.answer is not None
        assert call.answer.message is not None
        turns.messages += call.intent.messages[bool(call.intent.kept["instructions"]) :]
        turns.messages.append(dict(call.answer.message))  # items may be put to it; what is recorded stays as it is
    if isinstance(body.input, str):
        turns.messages.append({"role": "user", "content": body.input})
    else:
        turns.add(body.input)
    if not turns.messages:
        raise BadRequest("`input` is empty: give a text or at least one item", param="input")
    return turns.messages


def response(call: Recorded, *, begun: bool = False) -> dict[str, Any]:
    """The response of a call; `begun`: as it is before its answer."""
    answer, created = call.answer, call.intent.started_at.timestamp()
    told: dict[str, Any] = {
        "id": call.intent.call_id,
        "object": "response",
        "created_at": int(created),
        "completed_at": None,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        **call.intent.kept,
        "output": [],
        "usage": None,
    }
    if begun or answer is None:
        return told
    cut = answer.finish_reason == "length"
    return {
        **told,
        "completed_at": None if cut else int(created + answer.latency_s),
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": output(call),
        "usage": _usage(call),
    }


def _usage(call: Recorded) -> dict[str, Any]:
    assert call.answer is not None
    prompt, sampled = len(call.intent.prompt_token_ids), len(call.answer.completion_token_ids)
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": sampled,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + sampled,
    }
