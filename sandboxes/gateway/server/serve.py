"""Run a gateway until a signal ends it: one process, or several workers on one port."""

import asyncio
import fcntl
import logging
import os
import ssl
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from socket import socket

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lakehouse.home import Home
from sandboxes.gateway.app import Gateway
from sandboxes.gateway.engines.orders import Orders
from sandboxes.gateway.server import listen
from sandboxes.gateway.server.boxes import Door, open_to_boxes
from sandboxes.gateway.server.handover import HandOver
from sandboxes.gateway.server.listen import Draining, Embedded, bind, bind_path, config, reserve, url_of
from sandboxes.gateway.server.workers import supervise
from sandboxes.gateway.sessions.journal import JournalError
from sandboxes.gateway.sessions.share import Share
from sandboxes.gateway.settings import Settings, check_upstream
from sandboxes.gateway.telemetry import logs, tracing

log = logging.getLogger(__name__)


class Place(BaseModel):
    """Where and how a gateway serves."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    settings: Settings
    host: str = "127.0.0.1"
    port: int = Field(default=8900, ge=0, le=65535)
    tls_cert: Path | None = None
    tls_key: Path | None = None
    socket: Path | None = None  # for boxes; the folder it lies in holds nothing else
    socket_group: int | None = None
    workers: int = Field(default=1, ge=1, le=64)
    drain_s: float = Field(default=8.0, ge=0)  # for running calls after the first signal; `lakeloop down` waits 10 s

    @model_validator(mode="after")
    def _both_or_none(self) -> "Place":
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("TLS needs both a certificate and its key: --tls-cert and --tls-key")
        return self

    @model_validator(mode="after")
    def _no_rewards_from_boxes(self) -> "Place":
        if self.socket is not None and self.settings.model_key_rewards:
            raise ValueError(
                "--socket is for boxes, where an agent could reward itself with a model key that gives rewards: leave out "
                "--model-key-rewards, and give rewards with the reward key"
            )
        return self

    def check_tls(self) -> None:
        """ValueError where certificate and key cannot be served with. The server reads them when it is announced already."""
        if self.tls_cert is None or self.tls_key is None:
            return
        try:
            for path in (self.tls_cert, self.tls_key):
                path.open("rb").close()  # of these the error names the file
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.tls_cert, self.tls_key, password="")
        except OSError as error:
            raise ValueError(
                f"TLS cannot be served with {self.tls_cert} and {self.tls_key}: {error}; --tls-cert is a certificate and "
                "--tls-key its own key without a passphrase, both readable and in PEM"
            ) from error

    @property
    def door(self) -> Door | None:
        """For agents inside boxes."""
        return Door(self.socket, self.socket_group) if self.socket else None

    def socket_path(self, worker: int) -> Path:
        """Where the other workers reach this one."""
        return Home(self.settings.home).gateway / f"worker-{worker}.sock"


def run(place: Place, announce: Callable[[str], None] = lambda _url: None) -> int:
    """Exit status: 0 after a signal, 1 where it cannot start (the reason in one line on stderr).

    `announce` is given the URL, once it is known and before the first request is taken.
    """
    try:
        if place.settings.traces:
            tracing.configure()
        place.check_tls()
        # Before the journal is opened: a second gateway on one home must not touch it.
        bound = bind(place.host, place.port) if place.workers == 1 else reserve(place.host, place.port)
        for url in place.settings.engines:
            check_upstream(url, place.settings.allow_upstream)
        lock = only_one(Home(place.settings.home).gateway)
        if place.door:
            place.door.prepare()
        Orders(place.settings.orders).begin()
        # Also where workers will serve: keys and journal are made once, by one process.
        gateway = Gateway(place.settings)
        if place.workers > 1:
            asyncio.run(gateway.close())
    except (ValidationError, ValueError, *JournalError) as error:
        print(f"gateway: {error}", file=sys.stderr)
        return 1
    logs.configure()
    place = place.model_copy(update={"port": bound.getsockname()[1]})
    url = url_of(bound, tls=place.tls_cert is not None)
    print(f"gateway: {url} -> {', '.join(place.settings.engines)} ({place.settings.model})", flush=True)
    announce(url)
    if place.workers > 1:
        return supervise(place.model_dump_json(), place.workers, Home(place.settings.home).gateway, place.drain_s, lock)
    listen.run(_serve(place, gateway, [bound], None))
    return 0


def only_one(folder: Path) -> int:
    """Hold this home's gateway lock; the descriptor that holds it. ValueError where another gateway does.

    Two that share a journal would take each other's running calls for dead. The kernel lets go of it with the process.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise ValueError(
            f"another gateway runs on the home folder {folder.parent}; end it first, or give this one a --home of its own"
        ) from error
    return lock


def run_worker(place: Place, share: Share) -> int:
    """One of several workers."""
    logs.configure(worker=share.index)
    try:
        if place.settings.traces:
            tracing.configure()
        place.check_tls()
        sockets = [bind(place.host, place.port, shared=True)]
        peers = bind_path(place.socket_path(share.index))
        gateway = Gateway(place.settings, share)
    except (ValueError, *JournalError) as error:
        print(f"gateway: worker {share.index}: {error}", file=sys.stderr)
        return 1
    listen.run(_serve(place, gateway, sockets, peers))
    return 0


async def _serve(place: Place, gateway: Gateway, sockets: Sequence[socket], peers: socket | None) -> None:
    app = gateway.app()

    async def drain() -> None:
        log.info("stopping", extra={"facts": {"drain_s": place.drain_s}})
        left = await gateway.drain(place.drain_s)
        log.info("stopped taking calls", extra={"facts": {"cut": left}})

    if peers is None:
        server = Draining(config(app, tls_cert=place.tls_cert, tls_key=place.tls_key), drain)
        async with open_to_boxes(place.door, app, gateway.journal, server):
            await server.serve(sockets=list(sockets))
        return
    paths = [place.socket_path(index) for index in range(gateway.share.of)]
    spread = HandOver(app, gateway.access, gateway.journal, gateway.share, paths)
    outer = Draining(config(spread, tls_cert=place.tls_cert, tls_key=place.tls_key), drain)
    inner = Embedded(config(app, lifespan=False))
    # The parent's end of this pipe is closed when the parent is no more.
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), outer.orphaned)
    others = asyncio.create_task(_serve_peers(inner, outer, peers))
    door = place.door if gateway.share.index == 0 else None  # it hands over what is not its own, as at the port
    async with open_to_boxes(door, spread, gateway.journal, outer):
        await outer.serve(sockets=list(sockets))
    inner.should_exit = True
    await others
    await spread.close()


async def _serve_peers(inner: Embedded, outer: Draining, peers: socket) -> None:
    """Not before the sessions are restored: a session that a request loads meanwhile would be there twice."""
    while not outer.started and not outer.should_exit:  # noqa: ASYNC110 - uvicorn has no start event
        await asyncio.sleep(0.01)
    await inner.serve(sockets=[peers])
