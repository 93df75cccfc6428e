"""The controller's side of the runner's protocol: one box as an object, the same for every backend."""

import asyncio
import json
import math
import os
import shlex
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from sandboxes.backends import runner
from sandboxes.backends.base import (
    GATEWAY_FOLDER,
    GATEWAY_PORT,
    WORKDIR,
    Background,
    BackgroundOutput,
    BoxSpec,
    ExecResult,
    SandboxError,
)
from sandboxes.backends.trees import Tree, executables
from sandboxes.deadline import Deadline

GRACE_S = 30.0  # the runner keeps the deadlines; we only notice when it does not
FILES_TIMEOUT_S = 60.0
LINE_LIMIT = 1 << 24  # a snapshot's list of names is one line
MAX_ARGUMENT = 131_071  # the kernel's limit on one argument (MAX_ARG_STRLEN less its NUL)
MAX_ARGUMENTS = 1 << 20  # argv and environment together

BASE_ENV = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/home/agent",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def runner_command() -> list[str]:
    """The command of PID 1. Its program travels over stdin, so a box needs no file of ours."""
    return ["python3", *runner.command()]


def gateway_folder(socket: Path) -> Path:
    """The folder to show to a box so that it finds the gateway's socket. SandboxError where that shows anything else."""
    folder = socket.resolve().parent
    try:
        held = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        raise SandboxError(f"the gateway's socket {socket} cannot be shown to a box: {error}") from error
    if held != [socket.name]:
        raise SandboxError(
            f"{folder} holds {', '.join(held) or 'nothing'} and should hold the gateway's socket {socket.name} alone: "
            "start the gateway with --socket"
        )
    return folder


def ended(what: str, code: int | None, killed: int, said: bytes) -> str:
    """How a box ended that nobody closed, the same words for every backend. `killed`: of its processes, for memory."""
    status = "" if code is None else f" with status {code}"
    return (
        f"{what} ended{status}, {killed} processes killed for memory. {said.decode(errors='replace').strip()}".strip()
    )


def _forward(gateway: Path | None) -> dict[str, Any] | None:
    """What the runner must know to pass connections on; None where the box reaches nothing."""
    if gateway is None:
        return None
    program = resources.files("sandboxes.backends").joinpath("forward.py").read_text(encoding="utf-8")
    return {"program": program, "port": GATEWAY_PORT, "socket": f"{GATEWAY_FOLDER}/{gateway.name}"}


class RunnerBox:
    """A box that answers on a pair of streams. `end` frees what the backend holds and is awaited once."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        spec: BoxSpec,
        *,
        end: Callable[[], Awaitable[None]],
        why_gone: Callable[[], Awaitable[str]],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._spec = spec
        self._image_env = spec.env
        self._end = end
        self._why_gone = why_gone
        self._started: dict[int, Sequence[str]] = {}  # in the background, by number
        self._turn = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None
        self._gone: str | None = None
        self._lease_end = time.monotonic() + spec.limits.lease_s

    async def prepare(self, filters: Mapping[str, str] | None = None) -> None:
        """Say hello, set the lease, write the work tree. SandboxError when the box does not answer.

        `filters`, as `seccomp.programs` gives them, is for boxes whose commands have no system-call filter of ours yet.
        """
        hello = {
            "op": "hello",
            "lease_s": self._spec.limits.lease_s,
            "forward": _forward(self._spec.gateway),
            "filters": dict(filters or {}),
        }
        self._writer.write(runner.program())
        try:
            await self._ask(hello, timeout_s=GRACE_S)
        except ValueError as error:
            raise SandboxError(str(error)) from error
        if self._spec.files:
            await self.write(self._spec.files)

    async def assign(self, spec: BoxSpec) -> None:
        """Take on work tree, environment and lease of a spec, for a box that was started before anybody asked for it.

        The spec is of the image and the limits that it was started with and has no gateway. SandboxError when the box does not
        answer.
        """
        self._spec = replace(spec, env={**self._image_env, **spec.env})
        self._lease_end = time.monotonic() + spec.limits.lease_s
        await self._ask({"op": "lease", "lease_s": spec.limits.lease_s}, timeout_s=GRACE_S)
        if spec.files:
            await self.write(spec.files)

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
        """Run a command until it ends or is stopped. ValueError where the kernel could not take the arguments."""
        if not math.isfinite(timeout_s + (silence_s or 0.0)):
            raise ValueError(f"a command needs a time-out in seconds, not {timeout_s} and {silence_s}")
        request = {**self._command(argv, cwd, env), "op": "exec", "silence_s": silence_s}
        deadline = Deadline.current()
        given_s = timeout_s if deadline is None else deadline.clip(timeout_s)
        reply, output = await self._ask({**request, "timeout_s": given_s}, stdin, timeout_s=given_s + GRACE_S)
        if deadline is not None and reply["stopped_by"] == "deadline" and given_s < timeout_s:
            raise deadline.exceeded(f"the command {shlex.join(argv)[:200]!r} ran")
        stdout, stderr = _streams(reply, output)
        return ExecResult(
            exit_code=reply["exit_code"],
            stdout=stdout,
            stderr=stderr,
            dropped_bytes=_dropped(reply),
            stopped_by=reply["stopped_by"],
            duration_s=reply["duration_s"],
        )

    async def start(self, argv: Sequence[str], *, cwd: str = WORKDIR, env: Mapping[str, str] | None = None) -> int:
        """Start a background process; its number. ValueError where the kernel could not take the arguments."""
        reply, _ = await self._ask({**self._command(argv, cwd, env), "op": "start"}, timeout_s=GRACE_S)
        self._started[reply["number"]] = tuple(argv)
        return int(reply["number"])

    async def processes(self) -> list[Background]:
        """The background processes that nobody has stopped."""
        reply, _ = await self._ask({"op": "processes"}, timeout_s=GRACE_S)
        return [Background(argv=self._started[told["number"]], **told) for told in reply["processes"]]

    async def output(self, number: int) -> BackgroundOutput:
        """What a background process said since the last look."""
        return await self._said("output", number)

    async def stop(self, number: int) -> BackgroundOutput:
        """Kill a background process and forget it; what it said last."""
        return await self._said("stop", number)

    async def _said(self, op: str, number: int) -> BackgroundOutput:
        reply, output = await self._ask({"op": op, "number": number}, timeout_s=GRACE_S)
        return BackgroundOutput(reply["exit_code"], *_streams(reply, output), _dropped(reply))

    def _command(self, argv: Sequence[str], cwd: str, env: Mapping[str, str] | None) -> dict[str, Any]:
        environment = {**BASE_ENV, **self._spec.env, **(env or {})}
        _check_arguments(argv, environment)
        return {"argv": list(argv), "cwd": cwd, "env": environment, "output_bytes": self._spec.limits.output_bytes}

    async def read(self, path: str, *, limit_bytes: int = 1 << 20) -> bytes:
        """A regular file below WORKDIR."""
        _, content = await self._ask({"op": "read", "path": path, "limit": limit_bytes}, timeout_s=FILES_TIMEOUT_S)
        return content

    async def write(self, files: Mapping[str, bytes]) -> None:
        """Write files below WORKDIR in one message; ValueError for paths that lead out or through links."""
        executable = executables(files)
        names = [(path, len(content), path in executable) for path, content in files.items()]
        await self._ask({"op": "write", "files": names}, b"".join(files.values()), timeout_s=FILES_TIMEOUT_S)

    async def snapshot(self) -> Tree:
        """Every regular file below WORKDIR. ValueError where sparse files or links claim more than `workdir_mb`."""
        limit = self._spec.limits.workdir_mb << 20
        reply, content = await self._ask({"op": "snapshot", "limit": limit}, timeout_s=FILES_TIMEOUT_S)
        files: dict[str, bytes] = {}
        start = 0
        for path, size, _ in reply["files"]:
            files[path] = content[start : start + size]
            start += size
        return Tree(files, executable=frozenset(path for path, _, executable in reply["files"] if executable))

    async def close(self) -> None:
        """End the box; when this returns nothing of it is left."""
        self._gone = self._gone or "it was closed"
        if self._closing is None:
            self._writer.close()
            self._closing = asyncio.ensure_future(self._end())
        await asyncio.shield(self._closing)

    async def _ask(self, request: dict[str, Any], payload: bytes = b"", *, timeout_s: float) -> tuple[Any, bytes]:
        """One request, its reply, its payload. A box that fails to answer, or whose caller left, is ended."""
        async with self._turn:
            if self._gone:
                raise SandboxError(f"the box is gone: {self._gone}")
            try:
                async with asyncio.timeout(timeout_s):
                    reply, content = await self._exchange(request, payload)
            except TimeoutError:
                await self._give_up(f"no answer to {request['op']!r} within {timeout_s:.0f} s")
            except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
                await self._give_up(self._gone or await self._reason(request["op"]), error)
            except asyncio.CancelledError:  # the stream is out of step now
                self._gone = "a call was cancelled"
                await self.close()
                raise
        if reply["ok"]:
            return reply, content
        if reply["kind"] == "missing":
            raise FileNotFoundError(reply["error"])
        raise ValueError(reply["error"])

    async def _reason(self, op: str) -> str:
        if time.monotonic() >= self._lease_end:
            return f"its lease of {self._spec.limits.lease_s:.0f} s ended during {op!r}"
        return f"{await self._why_gone()} (during {op!r})"

    async def _exchange(self, request: dict[str, Any], payload: bytes) -> tuple[Any, bytes]:
        self._writer.write(json.dumps({**request, "payload": len(payload)}).encode() + b"\n")
        if payload:
            self._writer.write(payload)
        await self._writer.drain()
        line = await self._reader.readuntil(b"\n")
        reply = json.loads(line)
        return reply, await self._reader.readexactly(reply["payload"])

    async def _give_up(self, reason: str, cause: Exception | None = None) -> None:
        self._gone = reason
        await self.close()
        raise SandboxError(f"the box is gone: {reason}") from cause


def _streams(reply: Mapping[str, Any], output: bytes) -> tuple[bytes, bytes]:
    """stdout and stderr, each with a line in place of what the runner left out."""
    found, start = [], 0
    for name in ("stdout", "stderr"):
        told = reply[name]
        middle, end = start + told["head"], start + told["head"] + told["tail"]
        gap = f"\n[... {told['dropped']} bytes left out ...]\n".encode() if told["dropped"] else b""
        found.append(output[start:middle] + gap + output[middle:end])
        start = end
    return found[0], found[1]


def _dropped(reply: Mapping[str, Any]) -> int:
    return int(reply["stdout"]["dropped"] + reply["stderr"]["dropped"])


def _check_arguments(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Refuse here what exec(2) would refuse inside with an error that looks like the command's own."""
    if not argv or not argv[0]:
        raise ValueError("argv is empty")
    total = 0
    for text in (*argv, *(f"{name}={value}" for name, value in env.items())):
        size = len(os.fsencode(text))
        total += size + 9
        if size > MAX_ARGUMENT:
            raise ValueError(
                f"an argument of {size} bytes is over the limit of {MAX_ARGUMENT}: send it over stdin or write a file"
            )
        if "\0" in text:
            raise ValueError("an argument contains a NUL byte")
    if total > MAX_ARGUMENTS:
        raise ValueError(
            f"arguments of {total} bytes are over the limit of {MAX_ARGUMENTS}: send them over stdin or write a file"
        )
