"""A load generator: as many clients as asked, each plays one conversation after the other, a call when it has the answer
of the last one."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

SYSTEM = "You are a careful research assistant. Use what you are told, think step by step, and answer in one line. " * 2


@dataclass
class Load:
    """What came of a run. Times in milliseconds, one per call."""

    seconds: float = 0.0
    tokens: int = 0
    latency_ms: list[float] = field(default_factory=list)
    first_ms: list[float] = field(default_factory=list)  # to the first content; streamed calls only

    @property
    def calls_per_s(self) -> float:
        return len(self.latency_ms) / self.seconds

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds


@dataclass(frozen=True)
class Target:
    """Where chat completions go. `operator`: the key that starts a session for each conversation, where that is needed."""

    url: str  # up to and with /v1
    model: str
    operator: str | None = None


@dataclass(frozen=True)
class Talk:
    """What each conversation is: so many calls, each with what was said before, so many tokens an answer."""

    max_tokens: int
    turns: int = 1
    stream: bool = False
    record: bool = False  # asks the engine for what a trainer needs of each token: its id and log-prob


async def drive(target: Target, talk: Talk, *, clients: int, calls: int, tag: str = "") -> Load:
    """`calls` chat completions over `clients` clients; RuntimeError with the answer where one fails."""
    load, numbers = Load(), iter(range(max(1, calls // talk.turns)))
    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http:

        async def client() -> None:
            for number in numbers:
                await _conversation(http, target, talk, f"{tag} {number}".strip(), load)

        began = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(clients)))
        load.seconds = time.perf_counter() - began
    return load


async def _conversation(http: aiohttp.ClientSession, target: Target, talk: Talk, name: str, load: Load) -> None:
    key = "none"
    if target.operator:
        rl = target.url.removesuffix("/v1") + "/rl/"
        key = (await _post(http, rl + "start_session", target.operator, {"task_id": f"bench-{name}"}))["api_key"]
    messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]
    for turn in range(talk.turns):
        messages.append({"role": "user", "content": f"question {turn} of conversation {name}"})
        body = {
            "model": target.model,
            "messages": messages,
            "max_tokens": talk.max_tokens,
            "temperature": 1.0,
            "stream": talk.stream,
        }
        if talk.record:
            body |= {"logprobs": True, "return_token_ids": True}
        began = time.perf_counter()
        if talk.stream:
            await _stream(http, target, key, body, began, load)
        else:
            answer = await _post(http, f"{target.url}/chat/completions", key, body)
            load.tokens += answer["usage"]["completion_tokens"]
            messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        load.latency_ms.append((time.perf_counter() - began) * 1000)
    if target.operator:
        await _post(http, rl + "end_session", key, {})


async def _post(http: aiohttp.ClientSession, url: str, key: str, body: Any) -> dict[str, Any]:
    async with http.post(url, json=body, headers={"Authorization": f"Bearer {key}"}) as answer:
        if answer.status != 200:
            raise RuntimeError(f"{url} answered {answer.status}: {(await answer.text())[:300]}")
        found: dict[str, Any] = await answer.json()
        return found


async def _stream(
    http: aiohttp.ClientSession, target: Target, key: str, body: dict[str, Any], began: float, load: Load
) -> None:
    body = {**body, "stream_options": {"include_usage": True}}
    url = f"{target.url}/chat/completions"
    async with http.post(url, json=body, headers={"Authorization": f"Bearer {key}"}) as answer:
        if answer.status != 200:
            raise RuntimeError(f"{url} answered {answer.status}: {(await answer.text())[:300]}")
        seen = False
        async for raw in answer.content:
            line = raw.replace(b": ", b":")
            if not seen and b'"content":"' in line and b'"content":""' not in line:
                load.first_ms.append((time.perf_counter() - began) * 1000)
                seen = True
            if b'"completion_tokens"' in line:
                rest = line.partition(b'"completion_tokens"')[2].lstrip(b": ")
                load.tokens += int(rest.split(b",")[0].split(b"}")[0])


async def paired(runs: Mapping[str, Callable[[], Awaitable[Load]]], rounds: int) -> dict[str, list[Load]]:
    """Run each in turn, `rounds` times, so that a slow minute of the machine hits all alike."""
    found: dict[str, list[Load]] = {name: [] for name in runs}
    for turn in range(rounds):
        for name in runs if turn % 2 == 0 else reversed(list(runs)):
            found[name].append(await runs[name]())
    return found
