"""A load generator: as many clients as asked, each sends its next call when it has the answer of the last one."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import aiohttp


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
    """Where chat completions go. `keys`: one per client, in turn."""

    url: str  # up to and with /v1
    model: str
    keys: tuple[str, ...] = ("none",)


async def drive(
    target: Target, *, clients: int, calls: int, max_tokens: int, stream: bool = False, tag: str = ""
) -> Load:
    """`calls` chat completions over `clients` clients; RuntimeError with the answer where one fails."""
    load, numbers = Load(), iter(range(calls))
    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http:

        async def client(own: int) -> None:
            key = target.keys[own % len(target.keys)]
            for number in numbers:
                await _call(http, target, key, f"{tag} question {number} of client {own}", max_tokens, stream, load)

        began = time.perf_counter()
        await asyncio.gather(*(client(own) for own in range(clients)))
        load.seconds = time.perf_counter() - began
    return load


async def _call(
    http: aiohttp.ClientSession, target: Target, key: str, text: str, max_tokens: int, stream: bool, load: Load
) -> None:
    body = {
        "model": target.model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": max_tokens,
        "temperature": 1.0,
        "stream": stream,
    }
    if stream:
        body["stream_options"] = {"include_usage": True}
    began = time.perf_counter()
    async with http.post(
        f"{target.url}/chat/completions", json=body, headers={"Authorization": f"Bearer {key}"}
    ) as answer:
        if answer.status != 200:
            raise RuntimeError(f"{target.url} answered {answer.status}: {(await answer.text())[:300]}")
        if stream:
            await _read_stream(answer, began, load)
        else:
            load.tokens += (await answer.json())["usage"]["completion_tokens"]
    load.latency_ms.append((time.perf_counter() - began) * 1000)


async def _read_stream(answer: aiohttp.ClientResponse, began: float, load: Load) -> None:
    seen = False
    async for line in answer.content:
        if (
            not seen
            and b'"content":"' in line.replace(b": ", b":")
            and b'"content":""' not in line.replace(b": ", b":")
        ):
            load.first_ms.append((time.perf_counter() - began) * 1000)
            seen = True
        if b'"completion_tokens"' in line:
            load.tokens += int(line.partition(b'"completion_tokens"')[2].lstrip(b": ").split(b",")[0].split(b"}")[0])


async def paired(runs: Mapping[str, Callable[[], Awaitable[Load]]], rounds: int) -> dict[str, list[Load]]:
    """Run each in turn, `rounds` times, so that a slow minute of the machine hits all alike."""
    found: dict[str, list[Load]] = {name: [] for name in runs}
    for turn in range(rounds):
        for name in runs if turn % 2 == 0 else reversed(list(runs)):
            found[name].append(await runs[name]())
    return found
