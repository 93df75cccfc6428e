"""A model as a judge, behind any OpenAI-compatible endpoint.

One verdict is one chat completion with a JSON schema. An answer that is no verdict is told what is wrong with it and asked
again; an endpoint that is overloaded or unreachable is asked again until the deadline.
"""

import asyncio
import ipaddress
import time
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
from pydantic import Field, ValidationError

from lakehouse.records import digest, dumps
from lakehouse.trajectory import Trajectory
from tasks.judges.base import JudgeFailed, JudgeMisconfigured, Measured, Verdict, cause, malformed, refused, scored
from tasks.judges.prompt import Prompt

LONGEST_PAUSE_S = 15.0
SCHEMA = {
    "type": "object",
    "properties": {"reason": {"type": "string"}, "score": {"type": ["number", "null"], "minimum": 0, "maximum": 1}},
    "required": ["reason", "score"],
    "additionalProperties": False,
}


class Answer(Verdict):
    """A model's verdict: its score is between 0 and 1."""

    score: float | None = Field(ge=0, le=1)


class EndpointJudge:
    """Asks a model. `url` ends before `/chat/completions`, such as "https://api.example.org/v1".

    `version` is the weight version where it is known, and part of the producer. `structured` asks for the schema; without
    it the prompt alone asks for JSON, for endpoints that know no `response_format`.
    """

    def __init__(
        self,
        url: str,
        model: str,
        prompt: Prompt,
        *,
        version: int | None = None,
        key: str | None = None,
        deadline_s: float = 60.0,
        attempts: int = 2,
        max_tokens: int = 512,
        structured: bool = True,
    ) -> None:
        host = urlsplit(url).hostname or ""
        near = _loopback(host)
        if not url.startswith(("http://", "https://")):
            raise JudgeMisconfigured(f"an endpoint starts with http:// or https://, not {url!r}")
        if key and not near and not url.startswith("https://"):
            raise JudgeMisconfigured(f"a key is sent to another machine over https:// only, not to {url!r}")
        self.url, self.model, self.prompt = url.rstrip("/"), model, prompt
        self.deadline_s, self.attempts = deadline_s, attempts
        self._asked: dict[str, Any] = {"model": model, "temperature": 0.0, "max_tokens": max_tokens}
        if structured:
            self._asked["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "verdict", "strict": True, "schema": SCHEMA},
            }
        asked = digest(prompt.digest, dumps(self._asked), str(attempts))[:12]
        self.producer = f"llm {model}{'' if version is None else f'@{version}'} {asked}"
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._near = near

    async def __aenter__(self) -> Self:
        self._http = httpx.AsyncClient(timeout=self.deadline_s, trust_env=not self._near, headers=self._headers)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._http.aclose()

    async def ask(self, trajectory: Trajectory) -> Measured:
        """A verdict within the deadline. JudgeFailed where the endpoint gave no answer, JudgeMisconfigured where it never will."""
        messages = [{"role": "user", "content": self.prompt.fill(trajectory)}]
        end = time.monotonic() + self.deadline_s
        found = Measured("malformed", {})
        for attempt in range(1, self.attempts + 1):
            answer = await self._complete(messages, end)
            found = self._verdict(answer, attempt)
            if found.status != "malformed":
                break
            messages = [
                messages[0],
                {"role": "assistant", "content": found.value["answer"]},
                {
                    "role": "user",
                    "content": f"That is not the JSON object asked for ({found.value['reason']}). Answer with it alone.",
                },
            ]
        return found

    def _verdict(self, answer: dict[str, Any], attempt: int) -> Measured:
        """What a completion says."""
        about = {"attempts": attempt, "usage": answer.get("usage")}
        try:
            choice = answer["choices"][0]
            message, finish = choice["message"], choice.get("finish_reason")
            text = message.get("content") or ""
        except (KeyError, IndexError, TypeError, AttributeError):
            raise JudgeFailed(
                f"{self.url} answered with something that is no chat completion: {str(answer)[:200]}"
            ) from None
        if message.get("refusal") or finish == "content_filter":
            return refused(str(message.get("refusal") or "the endpoint's content filter"), **about)
        if not isinstance(text, str):
            return malformed("the answer is not text", dumps(text), **about)
        try:
            return scored(Answer.model_validate_json(_bare(text)), **about)
        except ValidationError as error:
            cut = " (the tokens ran out)" if finish == "length" else ""
            return malformed(cause(error) + cut, text, **about)

    async def _complete(self, messages: list[dict[str, str]], end: float) -> dict[str, Any]:
        """A completion. What passes by itself is waited for until `end`."""
        pause, last = 0.25, "nothing was asked"
        while (left := end - time.monotonic()) > 0:
            try:
                response = await self._http.post(
                    f"{self.url}/chat/completions", json=self._asked | {"messages": messages}, timeout=left
                )
            except httpx.HTTPError as error:
                last = f"{type(error).__name__}: {error}"
            else:
                if response.status_code == 200:
                    try:
                        found = response.json()
                    except ValueError:
                        raise JudgeFailed(f"{self.url} answered with no JSON: {response.text[:200]}") from None
                    if not isinstance(found, dict):
                        raise JudgeFailed(f"{self.url} answered with {type(found).__name__}, not an object")
                    return found
                last = f"status {response.status_code}: {response.text[:300]}"
                self._passes(response.status_code, last)
                pause = max(pause, _retry_after(response))
            await asyncio.sleep(min(pause, LONGEST_PAUSE_S, max(0.0, end - time.monotonic())))
            pause *= 2
        raise JudgeFailed(f"{self.url} gave no answer within {self.deadline_s:g} s; last: {last}")

    def _passes(self, status: int, said: str) -> None:
        """Return where asking again may help."""
        if status in (401, 403, 404, 405):
            raise JudgeMisconfigured(
                f"{self.url} refuses model {self.model!r}: {said}. Check the endpoint, the model's name and the key"
            )
        if status < 500 and status not in (408, 409, 425, 429):
            raise JudgeFailed(f"{self.url} refuses the request: {said}")


def _bare(text: str) -> str:
    """The text without a Markdown fence around it."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text.split("\n", 1)[1][:-3].strip()
    return text


def _retry_after(response: httpx.Response) -> float:
    try:
        return max(0.0, float(response.headers.get("retry-after", "0")))
    except ValueError:  # a date
        return 0.0


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
