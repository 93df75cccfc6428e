"""Boxes from a Docker engine: a hardened container whose PID 1 is the runner, spoken to over its attached streams."""

import asyncio
import logging
import math
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import docker.errors
import requests
from docker.types import LogConfig, Mount, Ulimit

from sandboxes.backends import endings, images, seccomp
from sandboxes.backends.base import GATEWAY_FOLDER, BackendUnavailable, BoxSpec, Limits, SandboxError
from sandboxes.backends.client import BASE_ENV, LINE_LIMIT, RunnerBox, ended, gateway_folder, runner_command
from sandboxes.backends.foreign import MOUNT, PYTHON, Foreign, in_docker, must_have_shell, with_conda

LABEL = "lakeloop.box"
LEASE_LABEL = "lakeloop.lease_until"  # seconds since the epoch
CONTROLLER_LABEL = "lakeloop.controller"  # host:pid of whoever holds the box
CALL_TIMEOUT_S = 60
REMOVE_DEADLINE_S = 20.0
ENDED_S = 2.0  # to learn how a container ended
EngineError = (docker.errors.DockerException, requests.RequestException, OSError)

log = logging.getLogger(__name__)


def connect() -> docker.DockerClient:
    """The engine of DOCKER_HOST or the default socket. BackendUnavailable where none answers."""
    try:
        client = docker.from_env(timeout=CALL_TIMEOUT_S)
        client.ping()
    except EngineError as error:
        raise BackendUnavailable(
            f"no Docker engine answers ({error}): start one (deploy/docker-engine.sh start FOLDER) or set DOCKER_HOST"
        ) from error
    if client.api.base_url.startswith("https"):
        raise BackendUnavailable("the Docker engine is behind TLS, whose streams we cannot attach: use a Unix socket")
    return client


def docker_client() -> docker.DockerClient | None:
    """The engine, where one answers."""
    try:
        return connect()
    except BackendUnavailable:
        return None


class Docker:
    """A backend. Raises BackendUnavailable where no engine answers."""

    name = "docker"

    def __init__(self, *, progress: Callable[[str], None] = images.silent) -> None:
        self._client = connect()
        self._progress = progress
        self._known: dict[str, Foreign | None] = {}  # images that can be boxes; None: one of ours
        self._leftovers = endings.Leftovers(lambda now: reap(self._client, now))

    def prepare(self) -> None:
        """Make and import the standard image, if it is not there. Blocks."""
        images.docker_image(self._client, self._progress)

    async def start(self, spec: BoxSpec) -> RunnerBox:
        """A box that answers, with the work tree in place. ImageMissing, Unfit where its image cannot be one."""
        endings.on_signals()
        await self._leftovers.sweep()
        name, spec = spec.image or images.STANDARD.name, spec.leased()
        checked = name in self._known
        launch = asyncio.ensure_future(asyncio.to_thread(self._launch, name, spec))
        try:
            container, stream = await asyncio.shield(launch)
        except EngineError as error:
            raise SandboxError(f"a Docker box cannot be started: {error}") from error
        except asyncio.CancelledError:  # the thread goes on: wait for what it made and take it down
            container, stream = await launch
            stream.close()
            await asyncio.to_thread(_remove, self._client, container)
            raise
        foreign = self._known[name]
        env = spec.env if foreign is None else {**foreign.env, **spec.env}
        box = await _box(self._client, container, stream, replace(spec, env=env))
        try:
            await box.prepare(seccomp.programs())
            if foreign is not None and not checked:
                await must_have_shell(box, name)
        except BaseException:  # a start that was cancelled leaves no box either
            await box.close()
            raise
        return box

    def _launch(self, name: str, spec: BoxSpec) -> tuple[str, socket.socket]:
        """Create, attach, start: (container id, its attached stream)."""
        first = name not in self._known
        if first:
            ours = images.imported(self._client, name)
            self._known[name] = None if ours else in_docker(self._client, name)
        foreign = self._known[name]
        options = _options(spec)
        if foreign is None:
            options["entrypoint"] = runner_command()
        else:
            options["entrypoint"] = [*PYTHON, *runner_command()[1:]]
            options["mounts"].append(Mount(MOUNT, str(images.root_filesystem().path), type="bind", read_only=True))
        container = self._client.containers.create(name, **options)
        try:
            attached = self._client.api.attach_socket(container.id, {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
            stream = socket.socket(fileno=os.dup(attached.fileno()))
            attached._response.close()  # ours alone now: when it is closed, the box's stdin ends
            if first and foreign is not None:
                self._known[name] = with_conda(foreign, container)
            container.start()
        except BaseException:  # whatever happened, no container is left
            _remove(self._client, container.id)
            raise
        return container.id, stream


def _options(spec: BoxSpec) -> dict[str, Any]:
    limits = spec.limits
    return {
        "user": "0:0",  # the runner; commands become uid 1000, so they can neither trace nor signal it
        "cap_drop": ["ALL"],
        "cap_add": ["SETUID", "SETGID", "KILL"],
        "security_opt": ["no-new-privileges"],
        "network_mode": "none",
        "read_only": True,
        "tmpfs": _tmpfs(limits),
        "mounts": [_gateway(spec.gateway)] if spec.gateway else [],
        "shm_size": "16m",
        "pids_limit": limits.pids + 5,  # the agent's, the runner with a fork in flight, the forwarder
        "mem_limit": limits.memory_mb << 20,
        "memswap_limit": limits.memory_mb << 20,
        "nano_cpus": int(limits.cpus * 1e9),
        "ulimits": [Ulimit(name="core", soft=1, hard=1), Ulimit(name="nofile", soft=4096, hard=4096)],
        "ipc_mode": "private",
        "log_config": LogConfig(type="none"),
        "hostname": "box",
        "working_dir": "/testbed",
        "environment": {"PATH": BASE_ENV["PATH"]},
        "name": f"lakeloop-{os.getpid()}-{secrets.token_hex(6)}",
        "labels": {
            **spec.labels,
            LABEL: "1",
            LEASE_LABEL: str(math.ceil(time.time() + limits.lease_s)),
            CONTROLLER_LABEL: f"{socket.gethostname()}:{os.getpid()}",
        },
        "healthcheck": {"test": ["NONE"]},
        "stdin_open": True,  # and closed when we are gone: the runner then ends
        "auto_remove": True,
    }


def _gateway(socket: Path) -> Mount:
    return Mount(GATEWAY_FOLDER, str(gateway_folder(socket)), type="bind", read_only=True)


def _tmpfs(limits: Limits) -> dict[str, str]:
    own = "rw,exec,nosuid,nodev,uid=1000,gid=1000,mode=0755"
    return {
        "/testbed": f"{own},size={limits.workdir_mb}m",
        "/home/agent": f"{own},size=16m",
        "/tmp": "rw,exec,nosuid,nodev,mode=1777,size=64m",  # noqa: S108 - the box's own
    }


async def _box(client: docker.DockerClient, container: str, stream: socket.socket, spec: BoxSpec) -> RunnerBox:
    stream.setblocking(False)
    frames, writer = await asyncio.open_connection(sock=stream)
    output = asyncio.StreamReader(limit=LINE_LIMIT)
    errors = bytearray()
    pump = asyncio.ensure_future(_demultiplex(frames, output, errors))

    async def end() -> None:
        pump.cancel()
        await asyncio.to_thread(_remove, client, container)

    async def why_gone() -> str:
        code, killed = None, 0
        with suppress(TimeoutError):  # events end by the engine's clock, which may be behind ours, or hang with it
            code, killed = await asyncio.wait_for(asyncio.to_thread(_ending, client, container), ENDED_S + 3)
        return ended("the container", code, killed, bytes(errors[-2000:]))

    return RunnerBox(output, writer, spec, end=end, why_gone=why_gone)


def _ending(client: docker.DockerClient, container: str) -> tuple[int | None, int]:
    """Of a container that is gone: its status, and how often something of it was killed for memory.

    Its events are all that is left of it. That of memory may come after that of the end, and is waited for after a SIGKILL.
    """
    code, killed, until = None, 0, time.time() + ENDED_S
    try:
        with closing(client.events(since=1, until=until, filters={"container": container}, decode=True)) as events:
            for event in events:
                killed += event["Action"] == "oom"
                if event["Action"] == "die":
                    code = int(event["Actor"]["Attributes"]["exitCode"])
                if code is not None and (killed or code != 128 + signal.SIGKILL):
                    break
    except EngineError as error:
        log.warning("the engine does not say how container %s ended: %s", container[:12], error)
    return code, killed


async def _demultiplex(frames: asyncio.StreamReader, output: asyncio.StreamReader, errors: bytearray) -> None:
    """Docker's frames: one byte of stream number, three of nothing, four of length, then the data."""
    try:
        while True:
            header = await frames.readexactly(8)
            data = await frames.readexactly(int.from_bytes(header[4:], "big"))
            if header[0] == 1:
                output.feed_data(data)
            else:
                errors += data[:4096]
    except (asyncio.IncompleteReadError, OSError):
        pass  # the container ended; whoever waits for an answer sees the end
    finally:
        output.feed_eof()


def _remove(client: docker.DockerClient, container: str) -> None:
    """Remove by force and wait until the engine knows the container no more."""
    deadline = time.monotonic() + REMOVE_DEADLINE_S
    while time.monotonic() < deadline:
        try:
            client.api.remove_container(container, force=True, v=True)
        except docker.errors.NotFound:
            return
        except docker.errors.APIError as error:
            if error.status_code != 409:  # removal is already in progress
                raise SandboxError(f"container {container[:12]} cannot be removed: {error}") from error
        time.sleep(0.01)
    raise SandboxError(f"container {container[:12]} was not gone within {REMOVE_DEADLINE_S:.0f} s")


def reap(client: docker.DockerClient, now: float) -> int:
    """Remove boxes whose lease label lies before `now`. Returns how many."""
    late = [
        container["Id"]
        for container in client.api.containers(all=True, filters={"label": LABEL})
        if float(container["Labels"].get(LEASE_LABEL, "inf")) < now
    ]
    for container in late:
        _remove(client, container)
    return len(late)
