"""JSON to and from one engine: time spent waiting counted for the call, every failure an `EngineTrouble`."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from json import loads
from typing import Any

import orjson

from sandboxes.gateway.engines.connections import HELD_BYTES, Connections, Exchange
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

    def told(self, name: str) -> str:
        """A field of the JSON object that was asked for. EngineTrouble where the answer is something else."""
        try:
            return str(self.json()[name])
        except (ValueError, KeyError, TypeError) as error:
            raise EngineTrouble(f"the engine's answer to {self.path} is no object with {name!r}") from error


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
        exchange = await self._begin(path, request, self._deadline_s, most_held=HELD_BYTES)
        late = asyncio.get_running_loop().call_later(self._deadline_s, exchange.expire)
        try:
            with waiting:
                status = await exchange.head()
            if status != 200:
                raise Refusal(Answer(status, path, await exchange.body()))
            rest = b""
            while True:
                with waiting:
                    part = await exchange.part()
                if not part:
                    break
                *whole, rest = (rest + part).split(b"\n")
                for line in whole:
                    yield line
            if rest:
                yield rest
        except OSError as error:
            raise self._trouble(path, error) from error
        finally:
            late.cancel()
            self._connections.end(exchange)

    async def _whole(self, method: str, path: str, body: bytes | None, deadline_s: float | None) -> Answer:
        waiting = CURRENT.get() or Waiting()
        request = self._connections.request(method, path, body, waiting.headers)
        deadline_s = deadline_s or self._deadline_s
        with waiting:
            exchange = await self._begin(path, request, deadline_s)
            late = asyncio.get_running_loop().call_later(deadline_s, exchange.expire)
            try:
                return Answer(await exchange.head(), path, await exchange.body())
            except OSError as error:
                raise self._trouble(path, error) from error
            finally:
                late.cancel()
                self._connections.end(exchange)

    async def _begin(
        self, path: str, request: bytes, deadline_s: float, *, most_held: float = float("inf")
    ) -> Exchange:
        try:
            return await self._connections.begin(request, deadline_s=deadline_s, most_held=most_held)
        except OSError as error:
            raise self._trouble(path, error) from error

    def _trouble(self, path: str, error: OSError) -> EngineTrouble:
        """What a connection's error, a TimeoutError among them, says of the engine."""
        if isinstance(error, TimeoutError):
            return EngineSilent(f"the engine at {self.url} did not answer {path} in time")
        return EngineTrouble(f"the engine at {self.url} does not answer: {type(error).__name__} {error}".rstrip())


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
