"""HTTP client of the engine's token routes. Errors become `EngineTrouble` or `EngineRefused`."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from sandboxes.gateway.errors import EngineRefused, EngineTrouble
from sandboxes.gateway.facts import Conversation, Ending, Facts, Rendered, probe
from sandboxes.gateway.upstream import Guard, GuardedTransport

FACTS_LIFE_S = 60.0
ENDINGS: dict[Ending, dict[str, bool]] = {
    "prompt": {},
    "closed": {"add_generation_prompt": False},
    "open": {"add_generation_prompt": False, "continue_final_message": True},
}
PLUMBING = (
    "output_kind",
    "skip_clone",
    "output_text_buffer_length",
    "skip_reading_prefix_cache",
    "skip_special_tokens",
)


@dataclass
class Completion:
    """What the engine sampled, as it grows. One log-prob per id, in nats; spans as (label, start, end)."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    spans: list[tuple[str, int, int]] = field(default_factory=list)
    raw_logprobs: list[Any] = field(default_factory=list)  # the engine's own form, for clients that asked
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    @property
    def ended_turn(self) -> bool:
        """Whether the last id is an end-of-turn token (not a stop string, not the length limit)."""
        return self.finish_reason == "stop" and not isinstance(self.stop_reason, str)

    def add(self, choice: dict[str, Any]) -> list[int]:
        """Take in one choice, whole or a stream's next part. Returns the new ids."""
        new: list[int] = choice.get("token_ids") or []
        self.token_ids += new
        content = (choice.get("logprobs") or {}).get("content") or []
        self.logprobs += [entry["logprob"] for entry in content]
        self.raw_logprobs += content
        self.spans += [
            (str(span["version"]), span["start"], span["end"]) for span in choice.get("weight_versions") or []
        ]
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        self.stop_reason = choice.get("stop_reason") if choice.get("stop_reason") is not None else self.stop_reason
        return new


class Engine:
    """One engine over one pooled HTTP client. All calls share the pool; the caller sets the overall deadline."""

    def __init__(self, url: str, model: str, *, deadline_s: float, allow: Sequence[str] = ()) -> None:
        self.url = url.rstrip("/")
        self.model = model
        # Two pools: the pool's own work per request grows with the square of its idle connections. Text requests are
        # short and the engine does them one by one, so a few connections serve all; generations hold theirs for long.
        self.guard = Guard(self.url, allow)
        self._text = _client(self.url, self.guard, deadline_s, connections=8)
        self._tokens = _client(self.url, self.guard, deadline_s, connections=1024)
        self._facts: tuple[float, Facts] | None = None
        self._asking = asyncio.Lock()

    async def close(self) -> None:
        await self._text.aclose()
        await self._tokens.aclose()

    async def render(
        self, conversation: Conversation, sampling: Mapping[str, Any] | None = None, ending: Ending = "prompt"
    ) -> Rendered:
        """Token ids of a conversation, ending with the next turn's prompt, or its last turn closed or left open."""
        body = {**self._chat(conversation), **(sampling or {}), **ENDINGS[ending]}
        answer = await self._post("/v1/chat/completions/render", body)
        return Rendered(answer["token_ids"], answer.get("sampling_params") or {})

    async def generate(self, token_ids: Sequence[int], sampling: dict[str, Any], into: Completion) -> None:
        """Sample a whole completion, added to `into` at once."""
        answer = await self._post("/inference/v1/generate", self._generation(token_ids, sampling), self._tokens)
        into.add(answer["choices"][0])

    async def stream(
        self, token_ids: Sequence[int], sampling: dict[str, Any], into: Completion
    ) -> AsyncIterator[list[int]]:
        """Sample step by step; each step is added to `into` and its ids yielded. EngineTrouble where it breaks."""
        body = {**self._generation(token_ids, sampling), "stream": True}
        try:
            async with self._tokens.stream("POST", "/inference/v1/generate", json=body) as response:
                if response.status_code != 200:
                    await response.aread()
                    raise _failure(response)
                async for line in response.aiter_lines():
                    if not line.startswith("data: ") or line == "data: [DONE]":
                        continue
                    chunk = json.loads(line[6:])
                    if "error" in chunk:
                        raise EngineTrouble(f"the engine failed while generating: {_message(chunk)}")
                    for choice in chunk["choices"]:
                        yield into.add(choice)
        except httpx.TransportError as error:
            raise _unreachable(self.url, error) from error
        if into.finish_reason is None:
            raise EngineTrouble("the engine ended its stream without a finish reason")

    async def derender(
        self,
        token_ids: Sequence[int],
        prompt_ids: Sequence[int],
        conversation: Conversation,
        logprobs: list[Any] | None,
    ) -> dict[str, Any]:
        """The choice that these ids say: `message`, and `logprobs` with token texts where some are given."""
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "token_ids": list(token_ids)}
        if logprobs is not None:
            choice["logprobs"] = {"content": logprobs}
        body = {**self._derendering(prompt_ids, conversation), "generate_response": {"choices": [choice]}}
        answer = await self._post("/v1/chat/completions/derender", body)
        found: dict[str, Any] = answer["choices"][0]
        return found

    async def derender_step(
        self,
        token_ids: Sequence[int],
        prompt_ids: Sequence[int],
        conversation: Conversation,
        state: dict[str, Any] | None,
    ) -> tuple[str, dict[str, Any]]:
        """The content that the next ids add, less what the parser holds back, and the state for the next step."""
        chunk = {"choices": [{"index": 0, "token_ids": list(token_ids)}]}
        body = {
            **self._derendering(prompt_ids, conversation),
            "stream": True,
            "generate_chunk": chunk,
            "stream_state": state,
        }
        answer = await self._post("/v1/chat/completions/derender", body)
        delta = answer["chunk"]["choices"][0]["delta"]
        return delta.get("content") or "", answer["stream_state"]

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        """The text of ids, special tokens included."""
        answer = await self._post("/detokenize", {"model": self.model, "tokens": list(token_ids)})
        return str(answer["prompt"])

    async def healthy(self) -> bool:
        try:
            return (await self._text.get("/health", timeout=2.0)).status_code == 200
        except httpx.TransportError:
            return False

    async def weight_label(self) -> str | None:
        """The label of the served weights; None where the engine does not tell (it then tells with each answer)."""
        response = await self._get("/weight_info")
        return str(response.json()["weight_version"]) if response.status_code == 200 else None

    async def facts(self) -> Facts:
        """Version and template, asked again after a minute: the engine may have been restarted with others."""
        async with self._asking:
            if self._facts is None or time.monotonic() - self._facts[0] > FACTS_LIFE_S:
                self._facts = (time.monotonic(), await probe(self))
            return self._facts[1]

    def forget(self) -> None:
        """Another engine answers under this URL now: ask for its facts again."""
        self._facts = None

    async def version(self) -> str:
        response = await self._get("/version")
        return str(response.json()["version"]) if response.status_code == 200 else "unknown"

    def _chat(self, conversation: Conversation) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "messages": list(conversation.messages)}
        if conversation.tools:
            body |= {"tools": list(conversation.tools), "tool_choice": conversation.tool_choice}
        if conversation.template_kwargs:
            body["chat_template_kwargs"] = conversation.template_kwargs
        return body

    def _generation(self, token_ids: Sequence[int], sampling: dict[str, Any]) -> dict[str, Any]:
        return {
            "model": self.model,
            "token_ids": list(token_ids),
            "sampling_params": {**sampling, "logprobs": sampling.get("logprobs") or 0},
        }

    def _derendering(self, prompt_ids: Sequence[int], conversation: Conversation) -> dict[str, Any]:
        # The parsers read the tools, not the turns; the end of the prompt is enough to seed detokenisation.
        short = Conversation(
            [{"role": "user", "content": ""}],
            conversation.tools,
            conversation.tool_choice,
            conversation.template_kwargs,
        )
        return {"model": self.model, "chat_request": self._chat(short), "prompt_token_ids": list(prompt_ids[-16:])}

    async def _get(self, path: str) -> httpx.Response:
        try:
            return await self._text.get(path, timeout=10.0)
        except httpx.TransportError as error:
            raise _unreachable(self.url, error) from error

    async def _post(self, path: str, body: dict[str, Any], pool: httpx.AsyncClient | None = None) -> dict[str, Any]:
        try:
            response = await (pool or self._text).post(path, json=body)
        except httpx.TransportError as error:
            raise _unreachable(self.url, error) from error
        if response.status_code != 200:
            raise _failure(response)
        answer: dict[str, Any] = response.json()
        return answer


def recorded_sampling(sampling: dict[str, Any]) -> dict[str, Any]:
    """The sampling parameters worth keeping: what shapes the distribution, not how the engine returns it."""
    return {name: value for name, value in sampling.items() if name not in PLUMBING and value not in (None, [])}


def _client(url: str, guard: Guard, deadline_s: float, *, connections: int) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=32)
    timeout = httpx.Timeout(deadline_s, connect=5.0)
    inner = httpx.AsyncHTTPTransport(verify=url.startswith("https"), limits=limits, trust_env=False)
    return httpx.AsyncClient(base_url=url, timeout=timeout, trust_env=False, transport=GuardedTransport(guard, inner))


def _unreachable(url: str, error: httpx.TransportError) -> EngineTrouble:
    return EngineTrouble(f"the engine at {url} does not answer: {type(error).__name__} {error}".rstrip())


def _failure(response: httpx.Response) -> EngineRefused | EngineTrouble:
    """Class of a failed answer: only what the engine calls a bad request is the caller's doing."""
    try:
        body = response.json()
    except ValueError:
        body = {}
    message = _message(body) or response.text[:500]
    if response.status_code in (400, 422):
        param = (body.get("error") or {}).get("param") if isinstance(body.get("error"), dict) else None
        too_long = param == "input_tokens" or "longer than the maximum model length" in message
        return EngineRefused(message, param=param, code="context_length_exceeded" if too_long else None)
    return EngineTrouble(f"the engine answered {response.status_code} to {response.request.url.path}: {message}")


def _message(body: dict[str, Any]) -> str:
    error = body.get("error")
    return str(error.get("message", "")) if isinstance(error, dict) else str(error or body.get("detail") or "")
