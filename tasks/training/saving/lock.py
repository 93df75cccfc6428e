"""One run at a time in a work folder."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tasks.training.errors import TrainingError
from tasks.training.ranks import Ranks


@contextmanager
def exclusive(work: Path, ranks: Ranks) -> Iterator[None]:
    """Holds the work folder while the block runs; the lock falls with the process, however that ends."""
    held = ranks.only_first(lambda: take(work))
    try:
        yield
    finally:
        if held:
            held.close()


def take(work: Path) -> IO[str]:
    """Holds it until the file is closed. TrainingError where another process does."""
    work.mkdir(parents=True, exist_ok=True)
    file = (work / "lock").open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.seek(0)
        raise TrainingError(f"process {file.read()} already trains in {work}: wait for it or end it") from error
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file
