"""Room for gradings: as many at a time as this process has cores, whatever the number of workers on this machine.

More would only make each other slow. A slot is a locked file in the home folder, which the kernel lets go of when its
process ends, however it ends.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

PAUSE_S = 0.02


class Slots:
    """Take one of `size` slots, or all of them. Waits as long as its caller does: gradings have deadlines of their own."""

    def __init__(self, folder: Path, size: int) -> None:
        self._files = [folder / f"slot-{number}.lock" for number in range(size)]
        self._alone = folder / "alone.lock"
        self._turn = asyncio.Semaphore(size)  # within this process first come, first served

    @asynccontextmanager
    async def take(self, *, alone: bool = False) -> AsyncIterator[None]:
        """Hold one slot while the block runs; `alone`: all, so that no other grading runs beside it."""
        async with AsyncExitStack() as held:
            if alone:
                for file in (self._alone, *self._files):  # one after the other: those that run come to their end
                    await held.enter_async_context(_one_of([file]))
            else:
                await held.enter_async_context(self._turn)
                await held.enter_async_context(_one_of(self._files))
            yield


@asynccontextmanager
async def _one_of(files: list[Path]) -> AsyncIterator[None]:
    """Hold the first of these locks that is free."""
    files[0].parent.mkdir(parents=True, exist_ok=True)
    descriptors = [os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) for file in files]
    try:
        while not any(map(_lock, descriptors)):  # noqa: ASYNC110 - the event is in another process
            await asyncio.sleep(PAUSE_S)
        yield
    finally:
        for descriptor in descriptors:
            os.close(descriptor)  # lets go


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
