"""How boxes end that nobody closes: the signals that end their controller, and what a killed one left."""

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

EVERY_S = 60.0  # looking costs a listing of folders, or one question to the engine

log = logging.getLogger(__name__)


def on_signals() -> None:
    """From now on SIGTERM and SIGHUP end this program as Ctrl-C does, so that whoever holds a box closes it.

    Only those that it neither handles itself nor ignores, and only from its main thread: signals are handled nowhere else.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)


def _interrupt(_: int, frame: FrameType | None) -> None:
    handler = signal.getsignal(signal.SIGINT)  # of `asyncio.run` while that runs: it cancels the main task
    if not callable(handler):  # a shell starts what shall run in the background with Ctrl-C ignored
        handler = signal.default_int_handler
    handler(signal.SIGINT, frame)


class Leftovers:
    """What killed controllers left on this machine, looked for now and then by whoever starts boxes.

    `reap` removes what is past its lease and returns how many. Nobody's box at work is among it: none outlives its lease.
    """

    def __init__(self, reap: Callable[[float], int]) -> None:
        self._reap = reap
        self._next = 0.0

    async def sweep(self) -> None:
        """Look, if that was not done a moment ago. What cannot be removed is told and keeps nobody from starting a box."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY_S
        try:
            if count := await asyncio.to_thread(self._reap, time.time()):
                log.info("boxes past their lease removed: %d", count)
        except Exception as error:  # noqa: BLE001 - an engine has its own, and the next start says what is wrong with it
            log.warning("boxes past their lease could not be removed: %s", error)
