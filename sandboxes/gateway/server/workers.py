"""Several worker processes on one port over one journal.

The kernel spreads connections over the workers (SO_REUSEPORT). A session belongs to the worker that its number falls to, so
its state lives in one process only; a request that arrives elsewhere is handed over (see `handover`). The parent keeps the
port, starts a worker again that died, and passes signals on. Workers read their parent's pipe: they stop where it has died.
"""

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from sandboxes.gateway.telemetry.metrics import SHARED

log = logging.getLogger(__name__)
AGAIN_S = 1.0  # between two starts of a worker that keeps dying
LOOK_S = 0.1
GRACE_S = 5.0  # beyond the time a worker takes to drain; then it is killed


class Workers:
    """The children of one parent."""

    def __init__(self, place: str, count: int, metrics: Path, lock: int) -> None:
        self._place = place
        self._lock = lock
        self._environment = {**os.environ, SHARED: str(metrics)}
        self._running: list[subprocess.Popen[bytes] | None] = [None] * count
        self._started = [0.0] * count

    def start_missing(self) -> None:
        """Start every worker that is not running, none more than once a second."""
        for index, running in enumerate(self._running):
            if running is not None and running.poll() is None:
                continue
            if running is not None:
                self._forget(running)
            if time.monotonic() - self._started[index] < AGAIN_S:
                continue
            if running is not None:
                log.warning("worker died", extra={"facts": {"worker": index, "exit_status": running.returncode}})
            command = [sys.executable, "-m", "sandboxes.gateway.server.worker", self._place, str(index)]
            self._started[index] = time.monotonic()
            # A session of its own: Ctrl-C is for the parent alone, which passes it on once.
            self._running[index] = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.PIPE, start_new_session=True, pass_fds=[self._lock]
            )

    def tell(self, number: int) -> None:
        """Pass a signal on."""
        for running in self._running:
            if running is not None and running.poll() is None:
                running.send_signal(number)

    def wait(self, deadline_s: float) -> None:
        """Until all have ended; what has not by the deadline is killed."""
        deadline = time.monotonic() + deadline_s
        for running in self._running:
            if running is None:
                continue
            try:
                running.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()

    def _forget(self, ended: subprocess.Popen[bytes]) -> None:
        """Take a dead worker's gauges out of the shared metrics; its counts stay."""
        for file in Path(self._environment[SHARED]).glob(f"gauge_live*_{ended.pid}.db"):
            file.unlink(missing_ok=True)


def supervise(place: str, count: int, folder: Path, drain_s: float, lock: int) -> int:
    """Keep `count` workers running until a signal; returns the exit status.

    They hold the home's lock too: where the parent dies, nobody starts another gateway before the last of them has ended.
    """
    metrics = folder / "metrics"
    shutil.rmtree(metrics, ignore_errors=True)
    metrics.mkdir(parents=True, mode=0o700)
    workers, told = Workers(place, count, metrics, lock), []

    def note(number: int, _: FrameType | None) -> None:
        told.append(number)
        workers.tell(number)

    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, note)
    while not told:
        workers.start_missing()
        time.sleep(LOOK_S)
    workers.wait(drain_s + GRACE_S)
    return 0
