"""A lock that processes of one machine hold one after another: an advisory lock on a file, let go of by the kernel."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PAUSE_S = 0.02


@contextmanager
def locked(path: Path, *, deadline_s: float, busy: Callable[[str], Exception]) -> Iterator[None]:
    """Hold the lock file while the block runs, waiting for whoever holds it.

    After the deadline raises what `busy` makes of the holder's process id ("?" where it is not known). Turns within one
    process exclude each other too. Never nested: a second lock on the same file waits for the first.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + deadline_s
    with path.open("a+") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    file.seek(0)
                    raise busy(file.read() or "?") from None
                time.sleep(PAUSE_S)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def held(path: Path) -> bool:
    """Whether somebody holds the lock file now. Several may ask at once; only who holds it is in their way."""
    if not path.exists():
        return False
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
