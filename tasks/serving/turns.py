"""One deployment at a time: two that swap weights at once prove each other's.

Whoever holds the turn may have a whole exam sat meanwhile, so others wait for as long as it lives: the kernel ends the turn of a
process that ends. The deadline is for one that lives and hangs.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from lakehouse.locks import locked
from tasks.serving.errors import ServingError

DEADLINE_S = 86_400.0
TOLD_EVERY_S = 60.0
PAUSE_S = 0.1


class _Busy(Exception):
    """Its text is the holder's process id."""


@contextmanager
def turn(lock: Path, deadline_s: float = DEADLINE_S) -> Iterator[None]:
    """Hold the lock file while the block runs, waiting for whoever holds it, and saying so every minute.

    ServingError where that takes longer than the deadline, in seconds.
    """
    with ExitStack() as held:
        for pause in _tries(held, lock, deadline_s):
            time.sleep(pause)
        yield


@asynccontextmanager
async def async_turn(lock: Path, deadline_s: float = DEADLINE_S) -> AsyncIterator[None]:
    """As `turn`, for the event loop: who waits can be cancelled."""
    with ExitStack() as held:
        for pause in _tries(held, lock, deadline_s):
            await asyncio.sleep(pause)
        yield


def _tries(held: ExitStack, lock: Path, deadline_s: float) -> Iterator[float]:
    """Try until `held` has the lock; each item is how many seconds to let pass before the next try."""
    began, told = time.monotonic(), 0
    while True:
        try:
            held.enter_context(locked(lock, deadline_s=-1, busy=_Busy))  # at once or not
        except _Busy as busy:
            waited = time.monotonic() - began
            if waited > deadline_s:
                raise ServingError(
                    f"process {busy} has been deploying, or having an exam sat, for more than {deadline_s:.0f} s and holds "
                    f"{lock}: see what it waits for in the Prefect UI, or end it"
                ) from None
            if waited >= told * TOLD_EVERY_S:
                told += 1
                print(
                    f"waiting for process {busy}, which deploys or has an exam sat and holds {lock}: {waited:.0f} s so far"
                )
        else:
            return
        yield PAUSE_S
