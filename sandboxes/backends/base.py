"""What you may do in a box, kept apart from how you get one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

WORKDIR = "/testbed"  # where the work tree lies inside every box
GATEWAY_PORT = 8900
GATEWAY_URL = f"http://127.0.0.1:{GATEWAY_PORT}"  # the gateway, for commands in a box that was given its socket
GATEWAY_FOLDER = "/run/gateway"  # where such a box sees the socket's folder


class SandboxError(Exception):
    """The box, not what ran in it, failed. An episode that meets this ends as `infra_error`."""


class BackendUnavailable(SandboxError):
    """This backend cannot run here. The text names the cause and the remedy."""


@dataclass(frozen=True)
class Limits:
    """What a box may use."""

    memory_mb: int = 1024
    cpus: float = 1.0
    pids: int = 128
    workdir_mb: int = 256
    output_bytes: int = 65_536  # kept per stream and command; the rest is drained and counted
    lease_s: float = 900.0  # the box is gone after this, whoever holds it


@dataclass(frozen=True)
class BoxSpec:
    """A box to start. `image` is a root file system (bubblewrap: a folder, docker: an image); None: ours."""

    files: Mapping[str, bytes] = field(default_factory=dict)  # work tree: path relative to WORKDIR -> content
    image: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    labels: Mapping[str, str] = field(default_factory=dict)
    gateway: Path | None = None  # the gateway's socket for boxes, alone in its folder; all that the box can reach


@dataclass(frozen=True)
class ExecResult:
    """One finished command. `exit_code` is None where a deadline ended it."""

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    dropped_bytes: int  # beyond the output limit, both streams
    timed_out: bool
    duration_s: float


class Box(Protocol):
    """A running box. Every call has a deadline and raises SandboxError when the box is gone."""

    async def exec(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        cwd: str = WORKDIR,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> ExecResult:
        """Run a command to its end or its deadline; everything it started is dead when this returns."""
        ...

    async def read(self, path: str, *, limit_bytes: int = 1 << 20) -> bytes:
        """A regular file below WORKDIR. FileNotFoundError, or ValueError for links and paths that lead out."""
        ...

    async def write(self, files: Mapping[str, bytes]) -> None:
        """Write files below WORKDIR, making folders; ValueError for paths that lead out."""
        ...

    async def snapshot(self) -> dict[str, bytes]:
        """Every regular file below WORKDIR; links, devices and FIFOs are left out."""
        ...

    async def close(self) -> None:
        """End the box. May be called twice."""
        ...


class Backend(Protocol):
    """A way to get boxes."""

    name: str

    async def start(self, spec: BoxSpec) -> Box:
        """A box that answers. SandboxError if none can be had."""
        ...


@dataclass(frozen=True)
class RootFilesystem:
    """The files every box sees read-only: Python 3.11 with pytest and the usual tools."""

    path: Path
    digest: str
