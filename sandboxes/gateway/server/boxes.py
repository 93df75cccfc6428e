"""The door for agents inside boxes: a Unix socket at which a session's model key opens what it opens elsewhere.

A box has no network and sees the socket's folder, so a policy with a shell can send what it likes: the operator key and keys
that may set rewards open nothing here, not even by mistake.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import socket

import uvicorn
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from sandboxes.gateway.errors import GatewayError, Unauthorized
from sandboxes.gateway.http.endpoints import gateway_error
from sandboxes.gateway.server.listen import SOCKET_PATH_BYTES, Embedded, bind_path, config
from sandboxes.gateway.sessions.journal import Journal
from sandboxes.gateway.sessions.keys import bearer, hashed

log = logging.getLogger(__name__)

KNOWN_KEYS = 8192  # model keys that need not be looked up again: what a key is for never changes


class ModelKeysOnly:
    """ASGI middleware: Unauthorized, on every route, for whoever does not send a model key."""

    def __init__(self, app: ASGIApp, journal: Journal) -> None:
        self._app = app
        self._journal = journal
        self._known: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            await self._check(bearer(dict(request.headers)))
        except GatewayError as error:
            await (await gateway_error(request, error))(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _check(self, key: str) -> None:
        digest = hashed(key)
        if digest in self._known:
            return
        row = await self._journal.key(digest) if key else None
        if row is None or row.scopes.split() != ["model"]:
            raise Unauthorized(
                "from inside a box only a session's model key opens anything, and one that may give rewards does not"
            )
        if len(self._known) >= KNOWN_KEYS:
            self._known.clear()
        self._known.add(digest)


@dataclass(frozen=True)
class Door:
    """Where boxes find the gateway: a socket in a folder of its own, for its owner, or for a group too."""

    path: Path
    group: int | None = None

    def prepare(self) -> None:
        """Make the folder. ValueError where it holds anything else, or the path is too long.

        Boxes are shown the folder, not the socket, so that they find the socket of a gateway that was started again.
        """
        if len(os.fsencode(self.path)) > SOCKET_PATH_BYTES:
            raise ValueError(f"{self.path} is too long for a Unix socket ({SOCKET_PATH_BYTES} bytes)")
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        others = sorted(entry.name for entry in self.path.parent.iterdir() if entry.name != self.path.name)
        if others:
            raise ValueError(
                f"{self.path.parent} holds {others[0]} too; boxes see the whole folder, so --socket needs one of its own"
            )

    def bind(self) -> socket:
        """The listening socket, new in each process."""
        bound = bind_path(self.path)
        if self.group is not None:
            for one, mode in ((self.path.parent, 0o710), (self.path, 0o660)):
                os.chown(one, -1, self.group)
                one.chmod(mode)
        return bound


@asynccontextmanager
async def open_to_boxes(
    door: Door | None, app: ASGIApp, journal: Journal, beside: uvicorn.Server
) -> AsyncIterator[None]:
    """Serve `app` at the door too while the block runs, from when the server `beside` has started. No door, no serving."""
    if door is None:
        yield
        return
    server = Embedded(config(ModelKeysOnly(app, journal), lifespan=False))

    async def serve() -> None:
        while not beside.started:  # noqa: ASYNC110 - uvicorn has no start event; sessions are restored by then
            await asyncio.sleep(0.01)
        try:
            bound = door.bind()
        except OSError as error:
            log.error("boxes will not reach this gateway, so it stops: %s: %s", door.path, error)
            beside.should_exit = True
            return
        await server.serve(sockets=[bound])

    running = asyncio.create_task(serve())
    try:
        yield
    finally:
        server.should_exit = True
        if not server.started:
            running.cancel()
        await asyncio.wait([running])
