"""A recorded call: the intent, written before dispatch, and the answer, written before the client has its last byte."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, model_validator

from lakehouse.records import Status, digest, dumps

Message = dict[str, Any]
DEMONSTRATED = -1  # weight version of tokens no policy sampled
UNKNOWN = -2  # weight version of tokens whose version the engine did not tell; such a call is never `exact`


@dataclass(frozen=True)
class Conversation:
    """What a prompt is rendered from."""

    messages: Sequence[Message]
    tools: Sequence[Message] = ()
    tool_choice: str | Message = "auto"  # auto, none, required, or OpenAI's object that names one function
    template_kwargs: Message = field(default_factory=dict)
    raw: str | tuple[int, ...] | None = None  # the prompt itself, see `raw`: then no template is applied


class Intent(BaseModel):
    """What was about to be sent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    call_id: str
    call_index: int
    first_choice: str  # call id of its request's first choice, its own where it is that
    parent_call_id: str | None
    segment: int
    fork_reason: str | None
    body_digest: str
    idempotency_key: str | None
    messages: list[Message]
    tools: list[Message]
    template_kwargs: dict[str, Any]
    sampling: dict[str, Any]
    prompt_token_ids: list[int]
    token_route: Literal["generate", "chat", "demonstration"]
    template_digest: str
    engine_version: str
    started_at: datetime
    kept: dict[str, Any] = {}  # what the dialect must know of the request to tell its answer again

    @model_validator(mode="before")
    @classmethod
    def _alone(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {"first_choice": values.get("call_id"), **values}


class Answer(BaseModel):
    """What came back, also where nothing did."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    status: Status
    message: Message | None = None  # as the client was given it
    finish_reason: str | None = None
    stop_sequence: str | None = None  # the client's stop string that ended the call
    completion_token_ids: list[int] = []
    logprobs: list[float] | None = None
    weight_versions: list[int] = []
    token_status: Literal["exact", "missing"] = "missing"  # noqa: S105 - a status, no secret
    ended_turn: bool = False  # the last token is the model's own end of turn
    client_logprobs: dict[str, Any] | None = None  # only where the client asked for them
    latency_s: float = 0.0
    error: str | None = None  # cause, for people


@dataclass
class Recorded:
    """One call of a session. `answer` is None while it runs."""

    intent: Intent
    answer: Answer | None = None
    said: str | None = None  # the digest of the conversation that was asked, where it is known already

    @property
    def live(self) -> bool:
        """Running, or answered with a message: what a later call may continue."""
        return self.answer is None or self.answered

    @property
    def answered(self) -> bool:
        return self.answer is not None and self.answer.message is not None

    @property
    def with_answer(self) -> str:
        """The digest of the conversation with its answer, which a later call may continue. Only of answered calls."""
        assert self.answer is not None
        assert self.answer.message is not None
        intent = self.intent
        said = self.said or prefix_digests(intent.messages, intent.tools, intent.template_kwargs)[-1]
        return continued(said, self.answer.message)

    @cached_property
    def all_token_ids(self) -> list[int]:
        """Prompt and completion. Only asked of answered calls."""
        assert self.answer is not None
        return self.intent.prompt_token_ids + self.answer.completion_token_ids

    def row(self, session_id: str, *, masked: str | None, continues: str | None) -> dict[str, Any]:
        """The fields of `lakehouse.records.Call`, without the two ids that only the caller knows.

        `continues` is what its line goes on from, see `lines.links`.
        """
        intent, answer = self.intent, self.answer
        assert answer is not None
        return {
            "call_id": intent.call_id,
            "session_id": session_id,
            "call_index": intent.call_index,
            "parent_call_id": intent.parent_call_id,
            "continues_call_id": continues,
            "segment": intent.segment,
            "fork_reason": intent.fork_reason,
            "prompt_token_ids": intent.prompt_token_ids,
            "completion_token_ids": answer.completion_token_ids,
            "logprobs": answer.logprobs,
            "weight_versions": answer.weight_versions,
            "token_status": "missing" if masked else answer.token_status,
            "token_route": intent.token_route,
            "status": answer.status.value,
            "finish_reason": answer.finish_reason,
            "request_messages": dumps(intent.messages),
            "response_message": dumps(answer.message),
            "tools": dumps(intent.tools),
            "sampling": dumps(intent.sampling),
            "template_digest": intent.template_digest,
            "engine_version": intent.engine_version,
            "latency_s": answer.latency_s,
            "started_at": intent.started_at.isoformat(),
        }


def canonical(message: Message) -> Message:
    """A message without what clients add or drop on the way back: equal turns give equal values."""
    calls = [
        {"id": call.get("id"), "name": call["function"]["name"], "arguments": _meant(call["function"]["arguments"])}
        for call in message.get("tool_calls") or []
    ]
    return {
        "role": message["role"],
        "content": message.get("content") or "",
        "tool_calls": calls,
        "tool_call_id": message.get("tool_call_id"),
        "name": message.get("name"),
    }


def _meant(arguments: Any) -> Any:
    """What a call's arguments say: clients such as Pydantic AI write their JSON anew, with their own spaces."""
    try:
        return orjson.loads(arguments)
    except orjson.JSONDecodeError:  # no text either, which is what else it raises this for
        return arguments


def prefix_digests(messages: Sequence[Message], tools: Sequence[Message], template_kwargs: Message) -> list[str]:
    """One digest per prefix of a conversation, the empty one first. Equal: same turns, tools and template options."""
    digests = [digest(compared(tools), compared(template_kwargs))]
    for message in messages:
        digests.append(continued(digests[-1], message))
    return digests


def continued(said: str, message: Message) -> str:
    """The digest of a conversation, given that of all but its last message."""
    return digest(said, compared(canonical(message)))


def compared(value: Any) -> bytes:
    """Equal for equal values, within this process only: what is kept is written by `dumps`, whose text is for good."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # an integer beyond 64 bits
        return dumps(value).encode()
