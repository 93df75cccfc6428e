"""HTTP/1.1 connections to one engine, on asyncio and the parser that uvicorn uses.

Every model call is three requests to its engine. With a general client (aiohttp) those were most of what the gateway adds
to a call; an exchange here costs a third of one there, since there is nothing to negotiate: one host, bodies held
whole, no redirects, cookies, encodings or proxies. Addresses are the guard's, see there.
"""

import asyncio
import socket
import ssl
import time
from collections import deque
from collections.abc import Mapping
from typing import cast
from urllib.parse import urlsplit

import httptools

from sandboxes.gateway.engines.guard import Guard

CONNECT_S = 5.0
# A server closes what was idle for its own keep-alive time, 5 s for vLLM's: a connection must not be used just then.
IDLE_S = 4.0
HELD_BYTES = 1 << 20  # of a streamed body that nobody takes; then the engine is made to wait


class BrokenExchange(OSError):
    """The engine closed the connection in the middle, or sent what is no HTTP."""


class Exchange(asyncio.Protocol):
    """One connection; it carries one request and its answer at a time."""

    def __init__(self) -> None:
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._wake: asyncio.Future[None] | None = None  # who waits for more of the answer
        self._parts: deque[bytes] = deque()
        self._held = 0
        self._most_held = float("inf")
        self._paused = self._headed = self._ended = self._bounded = self._kept = False
        self._broken: Exception | None = None
        self.status = 0

    def expire(self) -> None:
        """Its time is over: whoever waits gets a TimeoutError."""
        self._broken = self._broken or TimeoutError()
        self.abort()
        self._woken()

    @property
    def reusable(self) -> bool:
        """Whether the last answer is over and the connection may carry another."""
        return self._ended and self._kept and not self._paused and self._broken is None

    @property
    def gone(self) -> bool:
        return self._broken is not None or self._transport is None or self._transport.is_closing()

    def send(self, request: bytes, most_held: float) -> None:
        """Begin an exchange. `most_held`: bytes of the body that are held; infinite where it is wanted whole."""
        assert self._transport is not None
        self._most_held = most_held
        self._parser = httptools.HttpResponseParser(self)
        self._parts.clear()
        self._held, self.status = 0, 0
        self._headed = self._ended = self._bounded = False
        self._transport.write(request)

    async def head(self) -> int:
        """The status, once it is known."""
        while not self._headed:
            await self._more()
        return self.status

    async def part(self) -> bytes:
        """The next part of the body; empty at its end."""
        while not self._parts and not self._ended:
            await self._more()
        part = b"".join(self._parts)
        self._parts.clear()
        self._held = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return part

    async def body(self) -> bytes:
        """All of the body."""
        while not self._ended:
            await self._more()
        return b"".join(self._parts)

    def abort(self) -> None:
        """Close at once: an engine that still generates for this exchange stops."""
        if self._transport is not None:
            self._transport.abort()

    async def _more(self) -> None:
        if isinstance(self._broken, TimeoutError):
            raise self._broken
        if self._broken is not None:
            raise BrokenExchange(str(self._broken)) from self._broken
        self._wake = asyncio.get_running_loop().create_future()
        try:
            await self._wake
        finally:
            self._wake = None

    def _woken(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    # ---- asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods only

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._ended:  # nobody asked
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._broken = error
            self.abort()
        if self._headed or self._broken:
            self._woken()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._headed and not self._bounded and exc is None:
            self._ended = True  # a body that ends with its connection
        self._broken = self._broken or exc or ConnectionResetError("the connection was closed")
        self._woken()

    # ---- the parser's calls

    def on_header(self, name: bytes, value: bytes) -> None:
        self._bounded = self._bounded or name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self.status = self._parser.get_status_code()
        self._kept = self._parser.should_keep_alive()
        self._headed = self.status >= 200  # one of the hundreds goes before the answer

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)
        self._held += len(part)
        if self._held > self._most_held and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        self._ended = self._headed


class Connections:
    """At most `limit` connections to the host of a URL; those that are idle are used again, the last one first."""

    def __init__(self, url: str, guard: Guard, limit: int) -> None:
        parts = urlsplit(url)
        if parts.hostname != guard.host:
            raise ValueError(f"{parts.hostname} is not the engine's host {guard.host}")
        self._guard = guard
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._prefix = parts.path.rstrip("/")
        self._host = parts.netloc
        self._idle: list[Exchange] = []
        self._slots = asyncio.Semaphore(limit)

    def request(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
        """The bytes of a request."""
        lines = [f"{method} {self._prefix}{path} HTTP/1.1", f"Host: {self._host}", "Accept: */*"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode() + (body or b"")

    async def begin(self, request: bytes, *, deadline_s: float, most_held: float = float("inf")) -> Exchange:
        """Send a request; to be given to `end` in any case. OSError where no connection can be had, TimeoutError where
        none becomes free in time."""
        if self._slots.locked():
            async with asyncio.timeout(deadline_s):
                await self._slots.acquire()
        else:
            await self._slots.acquire()
        try:
            one = self._take() or await self._connect()
        except BaseException:  # a cancelled caller too: the slot would be lost
            self._slots.release()
            raise
        one.send(request, most_held)
        return one

    def end(self, one: Exchange) -> None:
        """Keep the connection for another; where its answer was not read to the end, it is aborted."""
        self._slots.release()
        if one.reusable:
            one.idle_since = time.monotonic()
            self._idle.append(one)
        else:
            one.abort()

    def close(self) -> None:
        """Close what is idle."""
        for one in self._idle:
            one.abort()
        self._idle.clear()

    def _take(self) -> Exchange | None:
        oldest = time.monotonic() - IDLE_S
        while self._idle:
            one = self._idle.pop()
            if not one.gone and one.idle_since >= oldest:
                return one
            one.abort()
        return None

    async def _connect(self) -> Exchange:
        """To the first of the guard's addresses that answers. OSError with the last one's cause."""
        try:
            addresses = await self._guard.addresses()
        except ValueError as error:
            raise OSError(str(error)) from error
        failed: OSError = OSError("the name has no address")
        for address in addresses:
            try:
                async with asyncio.timeout(CONNECT_S):
                    _, one = await asyncio.get_running_loop().create_connection(
                        Exchange,
                        address,
                        self._port,
                        ssl=self._tls,
                        server_hostname=self._guard.host if self._tls else None,
                        family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                    )
            except TimeoutError:
                failed = OSError(f"no connection to {address} within {CONNECT_S:.0f} s")
            except OSError as error:
                failed = error
            else:
                return one
        self._guard.forget()  # the engine may be elsewhere by now
        raise failed
