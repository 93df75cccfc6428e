"""Processes that were asked to outlive their request. They end when told to, by themselves, or with the box."""

import contextlib
import os
import time
from typing import Any

from sandboxes.backends.runner.common import Refused
from sandboxes.backends.runner.gateway import Forward
from sandboxes.backends.runner.output import Capture
from sandboxes.backends.runner.processes import Started, clear, reap, statuses

MOST = 16  # that run or whose end nobody has seen


class Process:
    """One of them. It is known by its first process: whatever that starts stays below it, and ends with it."""

    def __init__(self, number: int, request: dict[str, Any]) -> None:
        self.number = number
        self.began = time.monotonic()
        self.ran_s: float | None = None  # once it has ended
        self.exit_code: int | None = None
        self.first = Started(request, background=True)
        os.close(self.first.stdin)  # it is at its end
        self.pid = self.first.pid
        self.exited = os.pidfd_open(self.pid)
        self.out, self.err = Capture(request["output_bytes"]), Capture(request["output_bytes"])
        self.streams = {self.first.stdout: self.out, self.first.stderr: self.err}

    def end(self) -> None:
        """It has ended: keep what it said last."""
        self.ran_s = time.monotonic() - self.began
        for descriptor, capture in self.streams.items():
            capture.finish(descriptor)
        self.streams.clear()
        self.exit_code = self.first.exit_code(self.err)
        os.close(self.exited)

    def told(self) -> dict[str, Any]:
        """Where it stands."""
        ran_s = time.monotonic() - self.began if self.ran_s is None else self.ran_s
        return {"number": self.number, "exit_code": self.exit_code, "ran_s": ran_s}


class Background:
    """All of them, by number."""

    def __init__(self) -> None:
        self.processes: dict[int, Process] = {}
        self.last = 0
        self.swept = True
        self.forward: Forward | None = None  # the way to the gateway, which they keep as long as one of them runs

    def running(self) -> dict[int, Process]:
        """Those that run, by process id."""
        return {process.pid: process for process in self.processes.values() if process.exit_code is None}

    def none_alive(self) -> bool:
        """Nor anything that one of them has left."""
        return self.swept and not self.running()

    def spared(self) -> set[int]:
        """Whom the end of a command leaves alone."""
        running = set(self.running())
        return running | {self.forward.pid} if running and self.forward else running

    def start(self, request: dict[str, Any]) -> int:
        if len(self.processes) >= MOST:
            over = next((number for number, process in self.processes.items() if process.exit_code is not None), None)
            if over is None:
                raise Refused(f"{MOST} background processes run already: stop one")
            del self.processes[over]
        if self.forward:
            self.forward.start()
        process = Process(self.last + 1, request)
        self.last = process.number
        self.processes[self.last] = process
        return self.last

    def descriptors(self) -> list[int]:
        """What must be looked at: their output, and their ends."""
        return [fd for process in self.running().values() for fd in (*process.streams, process.exited)]

    def attend(self, descriptor: int) -> None:
        """Read what one of them says, or see its end."""
        for process in self.running().values():
            if descriptor in process.streams:
                if not process.streams[descriptor].drain(descriptor):
                    os.close(descriptor)
                    del process.streams[descriptor]
            elif descriptor == process.exited:
                self.settle()

    def settle(self) -> None:
        """Write down who has ended."""
        reap()
        for pid, process in self.running().items():
            if pid in statuses:
                process.end()
                self.swept = False

    def sweep(self) -> None:
        """Between requests: kill what ended processes have left."""
        if not self.swept:
            clear(self.spared())
            self.settle()
            self.swept = True

    def stop(self, number: int) -> Process:
        """Kill one, with all that it started, and forget it."""
        process = self.find(number)
        if process.exit_code is None:
            clear(self.spared() - {process.pid})
            self.settle()
        return self.processes.pop(number)

    def find(self, number: int) -> Process:
        with contextlib.suppress(KeyError):
            return self.processes[number]
        raise Refused(f"there is no background process {number}")
