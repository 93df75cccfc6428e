"""Processes that a benchmark starts, measures and ends."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

ROOT = Path(__file__).resolve().parent.parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """A running server."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._all = psutil.Process(process.pid)

    def _family(self) -> list[psutil.Process]:
        return [self._all, *self._all.children(recursive=True)]

    @property
    def cpu_s(self) -> float:
        """Processor seconds used so far, children included."""
        return float(sum(sum(one.cpu_times()[:2]) for one in self._family()))

    @property
    def rss_mib(self) -> float:
        return float(sum(one.memory_info().rss for one in self._family())) / 2**20


@contextmanager
def server(
    command: Sequence[str], ready: str, *, log: Path, deadline_s: float = 120, env: Mapping[str, str] | None = None
) -> Iterator[Process]:
    """Run a command until the block ends. RuntimeError with the end of its log where `ready` does not answer in time."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, env={**os.environ, **(env or {})}
        )
    try:
        give_up = time.monotonic() + deadline_s
        while not _answers(ready):
            if process.poll() is not None:
                raise RuntimeError(f"{command[0]} ended with status {process.returncode}:\n{_tail(log)}")
            if time.monotonic() > give_up:
                raise RuntimeError(f"{command[0]} did not answer at {ready} within {deadline_s:.0f} s:\n{_tail(log)}")
            time.sleep(0.1)
        yield Process(process)
    finally:
        family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for left in psutil.wait_procs(family, timeout=5)[1]:  # such as an engine's, when it is ended before it is up
            left.kill()


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-1500:]


def python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
