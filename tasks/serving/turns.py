"""One deployment at a time: two that swap weights at once prove each other's."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tasks.serving.errors import ServingError

DEADLINE_S = 600.0  # for what deploys now: reload and proof on every engine
PAUSE_S = 0.2


@contextmanager
def turn(lock: Path, deadline_s: float = DEADLINE_S) -> Iterator[None]:
    """Hold the lock file while the block runs, waiting for whoever holds it; ServingError where that takes too long.

    The kernel lets go of it with the process, however that ends.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a+") as file:
        _wait(file, lock, deadline_s)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _wait(file: IO[str], lock: Path, deadline_s: float) -> None:
    give_up = time.monotonic() + deadline_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > give_up:
                file.seek(0)
                raise ServingError(
                    f"process {file.read() or '?'} has been deploying for more than {deadline_s:.0f} s and holds {lock}: "
                    "see what it waits for in the Prefect UI, or end it"
                ) from None
            time.sleep(PAUSE_S)
