"""Serve on a socket that is bound first: a taken port is a clear error, and port 0 gives a URL."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. OSError, with cause and remedy, where the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named TCP, or asyncio does not set TCP_NODELAY on accepted connections and every small answer waits 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(1024)
    except OSError as error:
        bound.close()
        raise OSError(
            error.errno, f"cannot listen on {host}:{port}: {error.strerror}; choose another port with --port"
        ) from error
    return bound


def url_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="on", timeout_graceful_shutdown=2, backlog=1024
    )


class _Embedded(uvicorn.Server):
    """A server inside somebody else's event loop: it leaves signals alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(app: ASGIApp, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve inside the running event loop; gives the URL. RuntimeError where the application does not start in 10 s."""
    bound = bind(host, port)
    server = _Embedded(config(app))
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
