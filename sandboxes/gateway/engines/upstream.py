"""HTTP to one engine: pooled connections to checked addresses, JSON both ways, time spent waiting counted for the call."""

import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from json import loads
from typing import Any

import aiohttp
import orjson
from aiohttp.abc import AbstractResolver, ResolveResult

from sandboxes.gateway.engines.guard import Guard
from sandboxes.gateway.engines.waiting import CURRENT, Waiting
from sandboxes.gateway.errors import EngineRefused, EngineSilent, EngineTrouble

CONNECT_S = 5.0
# A server closes what was idle for its own keep-alive time, 5 s for vLLM's: a connection must not be used just then.
IDLE_S = 4.0


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
        self._guard = guard
        self._timeout = aiohttp.ClientTimeout(total=deadline_s, sock_connect=CONNECT_S)
        self._connections = connections
        self._made: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._made is not None:
            await self._made.close()

    async def get(self, path: str, *, deadline_s: float | None = None) -> Answer:
        return await self._whole("GET", path, None, deadline_s)

    async def post(self, path: str, body: Any, *, deadline_s: float | None = None) -> Answer:
        return await self._whole("POST", path, body, deadline_s)

    async def lines(self, path: str, body: Any) -> AsyncGenerator[bytes, None]:
        """The lines of a streamed answer as they come. An answer with another status than 200 is raised as `Refusal`."""
        waiting = CURRENT.get() or Waiting()
        with self._told(path):
            async with self._session.post(path, **_sent(body, waiting), timeout=self._timeout) as response:
                if response.status != 200:
                    raise Refusal(Answer(response.status, path, await response.read()))
                rest = b""
                async with aclosing(_parts(response, waiting)) as parts:
                    async for part in parts:
                        *whole, rest = (rest + part).split(b"\n")
                        for line in whole:
                            yield line
                if rest:
                    yield rest

    @property
    def _session(self) -> aiohttp.ClientSession:
        """Made at first use, inside the event loop that will use it."""
        if self._made is None:
            connector = aiohttp.TCPConnector(
                limit=self._connections,
                keepalive_timeout=IDLE_S,
                resolver=_Checked(self._guard),
                use_dns_cache=False,  # the guard remembers what it checked
            )
            self._made = aiohttp.ClientSession(self.url, connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        return self._made

    async def _whole(self, method: str, path: str, body: Any, deadline_s: float | None) -> Answer:
        waiting = CURRENT.get() or Waiting()
        timeout = self._timeout if deadline_s is None else aiohttp.ClientTimeout(total=deadline_s)
        sent = _sent(body, waiting)
        with self._told(path), waiting.wait():
            async with self._session.request(method, path, **sent, timeout=timeout, allow_redirects=False) as response:
                return Answer(response.status, path, await response.read())

    @contextmanager
    def _told(self, path: str) -> Iterator[None]:
        """Turn what the HTTP client raises into what happened to the engine."""
        try:
            yield
        except TimeoutError as error:  # also aiohttp's own, which is both
            raise EngineSilent(f"the engine at {self.url} did not answer {path} in time") from error
        except (aiohttp.ClientError, OSError) as error:
            cause = error.__cause__ or error  # a name that was refused says so in the cause
            raise EngineTrouble(
                f"the engine at {self.url} does not answer: {type(error).__name__} {cause}".rstrip()
            ) from error


class Refusal(Exception):
    """A stream that was answered with an error status."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"{answer.status} from {answer.path}")
        self.answer = answer


class _Checked(AbstractResolver):
    """Gives the client the guard's addresses. A literal address never comes here: it was checked when it was set."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        if host != self._guard.host:
            raise OSError(f"{host} is not the engine's host {self._guard.host}")
        try:
            addresses = await self._guard.addresses()
        except ValueError as error:
            raise OSError(str(error)) from error
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Nothing is held."""


def _sent(body: Any, waiting: Waiting) -> dict[str, Any]:
    if body is None:
        return {"headers": waiting.headers}
    try:
        data = orjson.dumps(body)
    except TypeError as error:  # an integer beyond 64 bits
        raise EngineRefused(f"the request cannot be sent to the engine: {error}") from error
    return {"data": data, "headers": {"content-type": "application/json", **waiting.headers}}


async def _parts(response: aiohttp.ClientResponse, waiting: Waiting) -> AsyncGenerator[bytes, None]:
    """A body as it comes; the waits for it are counted, the time between them is not."""
    while True:
        with waiting.wait():
            part = await response.content.readany()
        if not part and response.content.at_eof():
            return
        yield part
