"""Serve on a socket that is bound first: a taken port is a clear error, and port 0 gives a URL."""

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from sandboxes.gateway.server.bounded import Bounded

BACKLOG = 1024
ENDED_AT_ONCE = 3  # exit status
# A client must be the first to let go of an idle connection, or it may send a call into one that is just being closed, and
# not know whether it arrived: httpx keeps one for 5 s, aiohttp for 15 s, Java's client for 30 s.
KEEP_ALIVE_S = 75
SOCKET_PATH_BYTES = 107  # what the kernel takes of a Unix socket's path
# New objects before the collector of cycles looks at them. A call makes thousands, nearly all gone by themselves: at Python's
# own 700 looking was a tenth of a call's processor time.
NEW_OBJECTS = 20_000


def bind(host: str, port: int, *, shared: bool = False, listen: bool = True) -> socket.socket:
    """A listening socket. OSError, with cause and remedy, where the port is taken.

    `shared`: several processes bind the same port and the kernel spreads connections over those that listen.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named TCP, or asyncio does not set TCP_NODELAY on accepted connections and every small answer waits 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        bound.bind((host, port))
        if listen:
            bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise OSError(
            error.errno, f"cannot listen on {host}:{port}: {error.strerror}; choose another port with --port"
        ) from error
    return bound


def reserve(host: str, port: int) -> socket.socket:
    """Hold a port for workers that bind it `shared`, without listening on it. OSError where somebody else has it."""
    first = bind(host, port)  # alone: a port that another gateway's workers share is a taken port
    port = first.getsockname()[1]
    first.close()
    return bind(host, port, shared=True, listen=False)


def bind_path(path: Path) -> socket.socket:
    """A Unix socket for this user alone. ValueError where the path is too long for one."""
    if len(str(path).encode()) > SOCKET_PATH_BYTES:
        raise ValueError(f"{path} is too long for a Unix socket ({SOCKET_PATH_BYTES} bytes); use a shorter --home")
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bound.bind(str(path))
    path.chmod(0o600)
    bound.listen(BACKLOG)
    return bound


def url_of(bound: socket.socket, *, tls: bool = False) -> str:
    host, port = bound.getsockname()[:2]
    return f"http{'s' if tls else ''}://" + (f"[{host}]:{port}" if ":" in host else f"{host}:{port}")


def config(
    app: ASGIApp, *, tls_cert: Path | None = None, tls_key: Path | None = None, lifespan: bool = True
) -> uvicorn.Config:
    """How every one of our servers serves."""
    return uvicorn.Config(
        app,
        http=Bounded,
        log_config=None,  # ours are JSON lines, see `logs`
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here depends on who the client says it is
        lifespan="on" if lifespan else "off",
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=2,  # for answers on their way out: calls were waited for before
        backlog=BACKLOG,
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
    )


def run(work: Coroutine[Any, Any, None]) -> None:
    """As `asyncio.run`, on uvloop where it is installed. The process is a server's from here on, with its imports done."""
    gc.collect()
    gc.freeze()  # what was imported stays: no need to go through it with every collection
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
    with asyncio.Runner(loop_factory=config(lambda *_: None).get_loop_factory()) as runner:  # type: ignore[arg-type]
        runner.run(work)


class Embedded(uvicorn.Server):
    """A server inside somebody else's event loop: it leaves signals alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Draining(uvicorn.Server):
    """A server that is told to stop first finishes what it does; told a second time, it ends at once."""

    def __init__(self, configured: uvicorn.Config, drain: Callable[[], Awaitable[None]]) -> None:
        super().__init__(configured)
        self._drain = drain
        self._told: asyncio.Task[None] | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, self.stop)
        try:
            yield
        finally:
            for one in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(one)

    def stop(self) -> None:
        """What a signal does."""
        if self._told is not None:
            os._exit(ENDED_AT_ONCE)  # the journal is safe against it, and says at the next start what was cut
        self._told = asyncio.create_task(self._finish())

    def orphaned(self) -> None:
        """What the end of the parent does."""
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        if self._told is None:
            self.stop()

    async def _finish(self) -> None:
        try:
            await self._drain()
        finally:
            self.should_exit = True


@asynccontextmanager
async def serving(app: ASGIApp, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve inside the running event loop; gives the URL. RuntimeError where the application does not start in 10 s."""
    bound = bind(host, port)
    server = Embedded(config(app))
    running = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        async with asyncio.timeout(10):
            while not server.started and not running.done():  # noqa: ASYNC110 - uvicorn has no start event
                await asyncio.sleep(0.005)
        if running.done():
            raise RuntimeError("the application did not start; its log says why")
        yield url_of(bound)
    finally:
        server.should_exit = True
        await running
        bound.close()
