"""One chat completion from an OpenAI-compatible endpoint, with patience for trouble that passes."""

import asyncio
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Any, Self

import httpx

from sandboxes.agents.base import AgentFailure, Endpoint, ModelUnavailable, Sampling
from sandboxes.deadline import Deadline

PATIENCE_S = 60.0  # how long a completion is asked for again before the endpoint counts as gone
CONNECT_S = 5.0
FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 5.0
TOO_LONG = ("context_length", "context length", "prompt too long", "too many tokens", "max_model_len")


class ContextTooLong(Exception):
    """The conversation no longer fits into the model's context."""


class Passing(Exception):
    """Trouble that may be over when we ask again."""

    def __init__(self, reason: str, least_wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.least_wait_s = least_wait_s


@dataclass(frozen=True)
class Completion:
    """The model's answer: `message` as it goes back into the conversation."""

    id: str
    message: Mapping[str, Any]
    finish_reason: str | None

    @property
    def tool_calls(self) -> Sequence[Mapping[str, Any]]:
        calls: Sequence[Mapping[str, Any]] = self.message.get("tool_calls") or ()
        return calls


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()  # tens of milliseconds: once per process, not once per episode


class Chat:
    """A connection for one run. Use it as an async context manager."""

    def __init__(self, endpoint: Endpoint, deadline: Deadline) -> None:
        self._model = endpoint.model
        self._deadline = deadline
        self._sent = 0
        self._client = httpx.AsyncClient(
            base_url=endpoint.base_url,
            headers={"Authorization": f"Bearer {endpoint.api_key}"},
            verify=_tls() if endpoint.base_url.startswith("https") else False,
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        demonstration: Mapping[str, Any] | None = None,
    ) -> Completion:
        """The next assistant message. ContextTooLong, ModelUnavailable or AgentFailure where there is none."""
        body: dict[str, Any] = {
            "model": self._model,
            "messages": list(messages),
            "tools": list(tools),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
        }
        if sampling.seed is not None:
            body["seed"] = sampling.seed + self._sent
        if demonstration is not None:
            body["demonstration"] = demonstration
        return _completion(await self._post(body))

    async def _post(self, body: Mapping[str, Any]) -> Any:
        """Send until there is an answer. The same idempotency key lets the gateway answer a repeat from its journal."""
        self._sent += 1
        headers = {"Idempotency-Key": f"turn-{self._sent}"}
        give_up, wait = time.monotonic() + self._deadline.clip(PATIENCE_S), FIRST_WAIT_S
        retry = 0
        while True:
            try:
                return await self._try(body, headers | {"x-stainless-retry-count": str(retry)})
            except Passing as trouble:
                pause = max(wait, trouble.least_wait_s)
                if time.monotonic() + pause >= give_up:
                    raise ModelUnavailable(f"no completion from {self._client.base_url}: {trouble}") from trouble
            await asyncio.sleep(pause)
            retry, wait = retry + 1, min(2 * wait, LONGEST_WAIT_S)

    async def _try(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Any:
        """The answer's JSON. Passing where it is worth asking again, else the exception that ends the run."""
        left = httpx.Timeout(max(0.1, self._deadline.left()), connect=CONNECT_S)
        try:
            answer = await self._client.post("chat/completions", json=body, headers=headers, timeout=left)
        except httpx.ReadTimeout as error:
            raise self._deadline.exceeded(f"waiting for {self._client.base_url} to answer") from error
        except httpx.TransportError as error:
            raise Passing(f"{type(error).__name__} {error}".strip()) from error
        if answer.is_success:
            return answer.json()
        reason = f"HTTP {answer.status_code} {answer.text[:300]}"
        if answer.status_code == 429 or answer.status_code >= 500:
            asked = answer.headers.get("retry-after", "")
            raise Passing(reason, float(asked) if asked.isdigit() else 0.0)
        if answer.status_code != 400:
            raise ModelUnavailable(f"the session is refused: {reason}")
        if any(sign in answer.text.lower() for sign in TOO_LONG):
            raise ContextTooLong(reason)
        raise AgentFailure(f"the endpoint calls our request invalid: {reason}")


def _completion(answer: Any) -> Completion:
    choice = answer["choices"][0]
    said = choice["message"]
    message = {"role": "assistant", "content": said.get("content") or ""}
    if said.get("tool_calls"):
        message["tool_calls"] = said["tool_calls"]
    return Completion(answer["id"], message, choice.get("finish_reason"))
