"""OpenAI Completions: raw prompts, text or token ids, to `calls.Request`; recorded calls to completion or chunks.

Spec: platform.openai.com/docs/api-reference/completions. What is not listed here is refused by name; `echo` among it, since
the engine is never asked for a prompt's log-probs. No template is applied: a call is recorded with one message, a user's
of the name `raw prompt`, which holds the prompt's text. Each prompt of a request is a request of its own inside.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, Strict

from sandboxes.gateway.calls.request import Request
from sandboxes.gateway.dialects.base import Asked
from sandboxes.gateway.dialects.sampling import SampledRequest
from sandboxes.gateway.dialects.wire import Off, check_model, decode, event, origin, part_of
from sandboxes.gateway.engines import raw as raw_prompts
from sandboxes.gateway.errors import BadRequest, ErrorBody, GatewayError
from sandboxes.gateway.sessions.flight import Part
from sandboxes.gateway.sessions.recorded import Message, Recorded
from sandboxes.gateway.sessions.sessions import Session

MAX_TOKENS = 16  # OpenAI's default for this route
MAX_PROMPTS = 128
TokenId = Annotated[int, Strict(), Field(ge=0, lt=2**31 - 1)]  # 31 bits, as engines and the lake hold them
Text = Annotated[str, Field(min_length=1)]


class CompletionRequest(SampledRequest):
    """The parameters that are served. Bounds of sampling parameters are the engine's to check."""

    prompt: Text | list[TokenId] | list[Text] | list[list[TokenId]]
    n: int | None = Field(default=None, ge=1)
    best_of: Literal[1] | None = None
    logprobs: int | None = Field(default=None, ge=0)
    echo: Off | None = None

    def prompts(self) -> list[str | list[int]]:
        """One or several. BadRequest where there is none, or an empty one."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        ids = [one for one in self.prompt if isinstance(one, int)]
        several: list[str | list[int]] = [ids] if ids else [one for one in self.prompt if not isinstance(one, int)]
        if not several or not all(several):
            raise BadRequest("`prompt` is empty: give a text, token ids, or a list of either", param="prompt")
        if len(several) > MAX_PROMPTS:
            raise BadRequest(f"`prompt` holds {len(several)} prompts; {MAX_PROMPTS} are the most", param="prompt")
        return several

    def sampling(self) -> dict[str, Any]:
        """What the client set, in the engine's names."""
        given = self.given()
        given["max_tokens"] = MAX_TOKENS if self.max_tokens is None else self.max_tokens
        if self.logprobs is not None:
            given |= {"logprobs": True, "top_logprobs": self.logprobs}
        return given


class Completions:
    """The dialect of `/v1/completions`."""

    name = "completions"
    shape = CompletionRequest
    errors = ErrorBody

    def parse(self, raw: bytes, headers: Mapping[str, str], session: Session, model: str) -> Asked:
        """The calls that a body asks for. BadRequest names the parameter at fault."""
        body = decode(raw, CompletionRequest)
        check_model(body.model, model)
        prompts, sampling, sent = body.prompts(), body.sampling(), origin(raw, headers)
        requests = [
            Request(
                raw_prompts.conversation(prompt),
                sampling,
                **(part_of(sent, at) if len(prompts) > 1 else sent),
                stream=bool(body.stream),
                logprobs=body.logprobs is not None,
                stop=body.stops,
                n=body.n or 1,
                id_prefix="cmpl-",
            )
            for at, prompt in enumerate(prompts)
        ]
        return Asked(
            requests[0],
            lambda calls: completion(calls, body.model),
            (lambda calls: Chunks(calls[0], body.model, include_usage=body.include_usage)) if body.stream else None,
            more=requests[1:],
        )

    def error(self, error: GatewayError) -> dict[str, Any]:
        """OpenAI's error body."""
        return error.body


def completion(calls: Sequence[Recorded], model: str) -> dict[str, Any]:
    """The answer in one piece: the choices of the first prompt, then those of the second."""
    choices = []
    for index, call in enumerate(calls):
        assert call.answer is not None
        logprobs = call.answer.client_logprobs
        choices.append(
            {
                "index": index,
                "text": _said(call),
                "finish_reason": call.answer.finish_reason,
                "logprobs": Logprobs().told(logprobs["content"]) if logprobs else None,
            }
        )
    return {**_head(calls[0], model), "choices": choices, "usage": _usage(calls)}


class Logprobs:
    """Log-probs in this route's form: lists beside each other. Offsets go on from one stretch to the next."""

    def __init__(self) -> None:
        self._offset = 0

    def told(self, entries: Sequence[Message]) -> dict[str, Any]:
        """The next tokens. `top_logprobs` has the sampled token too, as in the original."""
        tokens = [entry["token"] for entry in entries]
        offsets = []
        for token in tokens:
            offsets.append(self._offset)
            self._offset += len(token)
        tops = [{one["token"]: one["logprob"] for one in [*entry["top_logprobs"], entry]} for entry in entries]
        return {
            "tokens": tokens,
            "token_logprobs": [entry["logprob"] for entry in entries],
            "top_logprobs": tops,
            "text_offset": offsets,
        }


class Chunks:
    """Server-sent events of one answer."""

    def __init__(self, call: Recorded, model: str, *, include_usage: bool) -> None:
        self._head = _head(call, model)
        self._include_usage = include_usage
        self._sent: dict[int, int] = {}  # by choice, in characters
        self._logprobs: dict[int, tuple[Logprobs, int]] = {}  # by choice, with how many were told

    def first(self) -> Iterator[bytes]:
        """Nothing: the first text is the first event."""
        yield from ()

    def part(self, part: Part) -> Iterator[bytes]:
        """A part of one choice's text."""
        self._sent[part.choice] = self._sent.get(part.choice, 0) + len(part.text)
        yield self._chunk(part.choice, part.text, part.logprobs)

    def last(self, calls: Sequence[Recorded]) -> Iterator[bytes]:
        """Everything after the streamed parts: the whole answer, where it is given again out of the journal."""
        for choice, call in enumerate(calls):
            assert call.answer is not None
            told = self._logprobs[choice][1] if choice in self._logprobs else 0
            rest = (call.answer.client_logprobs or {}).get("content", [])[told:]
            text = _said(call)[self._sent.get(choice, 0) :]
            yield self._chunk(choice, text, rest, call.answer.finish_reason)
        if self._include_usage:
            yield event({**self._head, "choices": [], "usage": _usage(calls)})
        yield b"data: [DONE]\n\n"

    def error(self, error: GatewayError) -> Iterator[bytes]:
        """An error after the stream began."""
        yield event(error.body)

    def _chunk(self, choice: int, text: str, entries: Sequence[Message], finish: str | None = None) -> bytes:
        logprobs = None
        if entries:
            told, count = self._logprobs.get(choice, (Logprobs(), 0))
            logprobs = told.told(entries)
            self._logprobs[choice] = (told, count + len(entries))
        told_choice = {"index": choice, "text": text, "logprobs": logprobs, "finish_reason": finish}
        return event({**self._head, "choices": [told_choice], **({"usage": None} if self._include_usage else {})})


def _said(call: Recorded) -> str:
    assert call.answer is not None
    assert call.answer.message is not None
    return call.answer.message.get("content") or ""


def _usage(calls: Sequence[Recorded]) -> dict[str, int]:
    """Token counts: each prompt once, the completions together."""
    prompts = {call.intent.first_choice: len(call.intent.prompt_token_ids) for call in calls}
    sampled = sum(len(call.answer.completion_token_ids) for call in calls if call.answer)
    prompt = sum(prompts.values())
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}


def _head(call: Recorded, model: str) -> dict[str, Any]:
    created = int(call.intent.started_at.timestamp())
    return {"id": call.intent.call_id, "object": "text_completion", "created": created, "model": model}
