"""JSON to and from one engine: time spent waiting counted for the call, every failure an `EngineTrouble`."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from json import loads
from typing import Any

import orjson

from sandboxes.gateway.engines.connections import HELD_BYTES, Connections
from sandboxes.gateway.engines.guard import Guard
from sandboxes.gateway.engines.waiting import CURRENT, Waiting
from sandboxes.gateway.errors import EngineRefused, EngineSilent, EngineTrouble


@dataclass(frozen=True)
class Answer:
    """An answer in one piece."""

    status: int
    path: str
    raw: bytes

    @property
    def text(self) -> str:
        return self.raw.decode(errors="replace")

    def json(self) -> Any:
        """ValueError where it is no JSON. NaN, which is none, is read all the same: it is found where numbers are checked."""
        try:
            return orjson.loads(self.raw)
        except orjson.JSONDecodeError:
            return loads(self.raw)


class Upstream:
    """Connections to one engine. Every failure to get an answer is an `EngineTrouble`; statuses are the caller's to read."""

    def __init__(self, url: str, guard: Guard, *, deadline_s: float, connections: int) -> None:
        self.url = url
        self._deadline_s = deadline_s
        self._connections = Connections(url, guard, connections)

    async def close(self) -> None:
        self._connections.close()

    async def get(self, path: str, *, deadline_s: float | None = None) -> Answer:
        return await self._whole("GET", path, None, deadline_s)

    async def post(self, path: str, body: Any, *, deadline_s: float | None = None) -> Answer:
        return await self._whole("POST", path, _json(body), deadline_s)

    async def lines(self, path: str, body: Any) -> AsyncGenerator[bytes, None]:
        """The lines of a streamed answer as they come. An answer with another status than 200 is raised as `Refusal`."""
        waiting = CURRENT.get() or Waiting()
        request = self._connections.request("POST", path, _json(body), waiting.headers)
        with self._told(path):
            async with (
                asyncio.timeout(self._deadline_s),
                self._connections.exchange(request, most_held=HELD_BYTES) as exchange,
            ):
                with waiting.wait():
                    status = await exchange.head()
                if status != 200:
                    raise Refusal(Answer(status, path, await exchange.body()))
                rest = b""
                while True:
                    with waiting.wait():
                        part = await exchange.part()
                    if not part:
                        break
                    *whole, rest = (rest + part).split(b"\n")
                    for line in whole:
                        yield line
                if rest:
                    yield rest

    async def _whole(self, method: str, path: str, body: bytes | None, deadline_s: float | None) -> Answer:
        waiting = CURRENT.get() or Waiting()
        request = self._connections.request(method, path, body, waiting.headers)
        with self._told(path), waiting.wait():
            async with asyncio.timeout(deadline_s or self._deadline_s), self._connections.exchange(request) as exchange:
                return Answer(await exchange.head(), path, await exchange.body())

    @contextmanager
    def _told(self, path: str) -> Iterator[None]:
        """Turn what a connection raises into what happened to the engine."""
        try:
            yield
        except TimeoutError as error:
            raise EngineSilent(f"the engine at {self.url} did not answer {path} in time") from error
        except OSError as error:
            raise EngineTrouble(
                f"the engine at {self.url} does not answer: {type(error).__name__} {error}".rstrip()
            ) from error


class Refusal(Exception):
    """A stream that was answered with an error status."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"{answer.status} from {answer.path}")
        self.answer = answer


def _json(body: Any) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError as error:  # an integer beyond 64 bits
        raise EngineRefused(f"the request cannot be sent to the engine: {error}") from error
