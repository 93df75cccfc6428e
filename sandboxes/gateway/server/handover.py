"""A request that arrives at a worker which does not have its session goes to the one that does, over a Unix socket.

Whose a request is: its session key says the session, or the operator names the session in the path or the body; the number
that a session's id ends with says the worker. Sessions are started at the workers in turn.
"""

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import httpx
import orjson
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandboxes.gateway.errors import GatewayError
from sandboxes.gateway.http.access import Access
from sandboxes.gateway.http.bodies import read
from sandboxes.gateway.http.endpoints import gateway_error
from sandboxes.gateway.sessions.journal import Journal, JournalError
from sandboxes.gateway.sessions.keys import bearer, hashed
from sandboxes.gateway.sessions.share import Share, number_of

KNOWN_KEYS = 8192  # keys whose worker is remembered
IDLE_S = 4.0
START = "/rl/start_session"
FULL = 429
HOP = (b"connection", b"transfer-encoding", b"keep-alive", b"upgrade", b"proxy-connection", b"te", b"trailer")


class WorkerAway(GatewayError):
    """The worker that has the session ended just now: its parent starts it again and its sessions go on."""

    status = 503
    kind = "worker_error"
    retry = True


class HandOver:
    """ASGI middleware of one worker."""

    def __init__(self, app: ASGIApp, access: Access, journal: Journal, share: Share, sockets: Sequence[Path]) -> None:
        self._app = app
        self._access = access
        self._journal = journal
        self._share = share
        self._peers = [_client(path) for path in sockets]
        self._turn = itertools.cycle(range(share.of))
        self._owners: OrderedDict[str, int] = OrderedDict()  # by key digest

    async def close(self) -> None:
        for peer in self._peers:
            await peer.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            await self._send_on(request, send)
        except GatewayError as error:
            await (await gateway_error(request, error))(scope, receive, send)

    async def _send_on(self, request: Request, send: Send) -> None:
        path, body = request.url.path, None
        operator = self._access.is_operator(request)
        if operator and request.method == "POST":
            body = await read(request)
        if operator and path == START:
            workers = await self._where_to_start(body or b"")
        else:
            workers = [await self._owner(request, body, operator=operator)]
        if workers == [self._share.index]:
            await self._app(request.scope, request.receive if body is None else _again(body, request.receive), send)
            return
        body = await read(request) if body is None else body
        await self._relay(request, body, workers, send)

    async def _owner(self, request: Request, body: bytes | None, *, operator: bool) -> int:
        """The worker that has the session which a request is about; this one where it is about none."""
        if operator:
            number = _named(request.url.path, body)
            return self._share.index if number is None else self._share.owner(number)
        key = bearer(dict(request.headers))
        return await self._owner_of_key(hashed(key)) if key else self._share.index

    async def _owner_of_key(self, digest: str, otherwise: int | None = None) -> int:
        known = self._owners.get(digest)
        if known is not None:
            return known
        try:
            row = await self._journal.key(digest)
        except JournalError as error:
            raise WorkerAway(f"the journal cannot be read: {error}") from error
        number = number_of(row.session_id) if row else None
        if number is None:
            return self._share.index if otherwise is None else otherwise
        self._owners[digest] = self._share.owner(number)
        while len(self._owners) > KNOWN_KEYS:
            self._owners.popitem(last=False)
        return self._owners[digest]

    async def _where_to_start(self, body: bytes) -> list[int]:
        """In turn; all are asked where there is no room: each ends its own idle sessions. A given key stays with one worker."""
        given = _field(body, "api_key")
        if given:
            digest = hashed(given)
            return [await self._owner_of_key(digest, int(digest, 16) % self._share.of)]
        first = next(self._turn)
        return [(first + step) % self._share.of for step in range(self._share.of)]

    async def _relay(self, request: Request, body: bytes, workers: Sequence[int], send: Send) -> None:
        """Send to the workers in this order until one has room; its answer is the answer."""
        work = asyncio.create_task(self._ask(request, body, workers, send))
        gone = asyncio.create_task(_gone(request.receive))
        try:
            await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            gone.cancel()
            work.cancel()  # closes the connection to the other worker, which cancels the call there

    async def _ask(self, request: Request, body: bytes, workers: Sequence[int], send: Send) -> None:
        headers = [(name, value) for name, value in request.headers.raw if name not in HOP]
        url = quote(request.url.path, safe="/~:@!$&'()*+,;=") + (f"?{request.url.query}" if request.url.query else "")
        for index in workers:
            last = index == workers[-1]
            outgoing = self._peers[index].build_request(request.method, url, headers=headers, content=body)
            try:
                answer = await self._peers[index].send(outgoing, stream=True)
            except httpx.TransportError as error:
                if last:
                    raise WorkerAway(
                        f"worker {index}, which has this session, is being started again; try again in a moment"
                    ) from error
                continue
            try:
                if last or answer.status_code != FULL:
                    await _copy(answer, send)
                    return
            finally:
                await answer.aclose()


async def _copy(answer: httpx.Response, send: Send) -> None:
    headers = [(name.lower(), value) for name, value in answer.headers.raw if name.lower() not in HOP]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
    async for part in answer.aiter_raw():
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _client(path: Path) -> httpx.AsyncClient:
    # No time limit of its own: the worker that has the call has the deadlines.
    # Shorter than what the other worker keeps, see `listen.KEEP_ALIVE_S`.
    limits = httpx.Limits(max_connections=1024, max_keepalive_connections=64, keepalive_expiry=IDLE_S)
    transport = httpx.AsyncHTTPTransport(uds=str(path), limits=limits)
    return httpx.AsyncClient(
        transport=transport, base_url="http://worker", timeout=httpx.Timeout(None, connect=5.0), trust_env=False
    )


def _again(body: bytes, receive: Receive) -> Receive:
    """`receive`, giving a body that was read already once more."""
    given = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def replay() -> Message:
        return next(given, None) or await receive()

    return replay


def _named(path: str, body: bytes | None) -> int | None:
    """The number of the session that the operator's request names."""
    if path.startswith("/sessions/"):
        return number_of(path.removesuffix("/calls").removesuffix("/rewards"))
    named = _field(body or b"", "session_id")
    return number_of(named) if named else None


def _field(body: bytes, name: str) -> str | None:
    """A text field of a JSON body; None where there is none. What is wrong with the body, its handler says."""
    try:
        document = orjson.loads(body)  # strict: half a surrogate pair, which Python's parser takes, has no digest
    except orjson.JSONDecodeError:
        return None
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, str) else None


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
