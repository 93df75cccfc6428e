"""What you may do in a box, kept apart from how you get one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

from sandboxes.deadline import Deadline

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
    output_bytes: int = 65_536  # kept per stream and command, half of it from each end; the rest is drained and counted
    lease_s: float = 900.0  # the box is gone after this, whoever holds it; under a `Deadline` that decides


@dataclass(frozen=True)
class BoxSpec:
    """A box to start. `image` is a root file system (bubblewrap: a folder, docker: an image); None: ours."""

    files: Mapping[str, bytes] = field(default_factory=dict)  # work tree: path relative to WORKDIR -> content
    image: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    labels: Mapping[str, str] = field(default_factory=dict)
    gateway: Path | None = None  # the gateway's socket for boxes, alone in its folder; all that the box can reach

    def leased(self) -> "BoxSpec":
        """The same with the lease that the current `Deadline` asks for, where there is one: no box ends before its episode."""
        deadline = Deadline.current()
        return self if deadline is None else replace(self, limits=replace(self.limits, lease_s=deadline.lasts()))


@dataclass(frozen=True)
class ExecResult:
    """One finished command. `exit_code` is minus the signal that ended it, and None where we did: `stopped_by` says why.

    Of a stream longer than `output_bytes` the first and the last half of that are kept, with a line between them that says how
    many bytes are left out there.
    """

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    dropped_bytes: int  # left out, of both streams
    stopped_by: Literal["deadline", "silence"] | None
    duration_s: float

    @property
    def timed_out(self) -> bool:
        """Whether the command was stopped, for whichever reason."""
        return self.stopped_by is not None


@dataclass(frozen=True)
class Background:
    """A background process as it stands."""

    number: int  # within its box
    argv: Sequence[str]
    exit_code: int | None  # None: it runs
    ran_s: float


@dataclass(frozen=True)
class BackgroundOutput:
    """What a background process has said since the last look, cut as in `ExecResult`."""

    exit_code: int | None  # None: it runs
    stdout: bytes
    stderr: bytes
    dropped_bytes: int


class Box(Protocol):
    """A running box. Every call has a deadline and raises SandboxError when the box is gone.

    A command's environment is a small fixed one (PATH, HOME, LANG, TZ), then that of the box, then `env`; nothing comes from
    the controller's own. `cwd` may be relative to WORKDIR; one that cannot be entered is the command's failure: 126.
    """

    async def exec(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        silence_s: float | None = None,
        cwd: str = WORKDIR,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> ExecResult:
        """Run a command until it ends, `timeout_s` is over, or it has said nothing for `silence_s`.

        Everything it started is dead when this returns. DeadlineExceeded where the current `Deadline` came before `timeout_s`.
        """
        ...

    async def start(self, argv: Sequence[str], *, cwd: str = WORKDIR, env: Mapping[str, str] | None = None) -> int:
        """Start a background process, which ends by itself, by `stop` or with the box; its number.

        It must stay in the foreground of its own: when its first process ends, the rest is killed. Should a command in the
        foreground out-fork the killing of its remains, background processes are killed with them (exit code -9).
        """
        ...

    async def processes(self) -> list[Background]:
        """The background processes that run, and those that have ended and were not stopped. At most 16."""
        ...

    async def output(self, number: int) -> BackgroundOutput:
        """What a background process said since the last look. ValueError where there is none of that number."""
        ...

    async def stop(self, number: int) -> BackgroundOutput:
        """Kill a background process with all that it started, and forget it; what it said last."""
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
