"""An event loop whose clock jumps: an hour of waiting takes no time."""

import asyncio
import selectors
from typing import Any


class Jumping(asyncio.SelectorEventLoop):
    """Where nothing is ready its time is that of the next timer. RuntimeError where nothing will ever happen."""

    def __init__(self) -> None:
        self._waits = _Waits()
        super().__init__(self._waits)

    def time(self) -> float:
        return self._waits.now


class _Waits(selectors.DefaultSelector):
    """Instead of waiting, moves the clock by as much."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        if timeout is None:
            raise RuntimeError("every task waits, and no timer is set: a deadlock")
        self.now += max(0.0, timeout)
        return super().select(0)
