"""One deployment at a time: two that swap weights at once prove each other's."""

from contextlib import AbstractContextManager
from pathlib import Path

from lakehouse.locks import locked
from tasks.serving.errors import ServingError

DEADLINE_S = 600.0  # for what deploys now: reload and proof on every engine


def turn(lock: Path, deadline_s: float = DEADLINE_S) -> AbstractContextManager[None]:
    """Hold the lock file while the block runs, waiting for whoever holds it; ServingError where that takes too long."""

    def busy(holder: str) -> ServingError:
        return ServingError(
            f"process {holder} has been deploying for more than {deadline_s:.0f} s and holds {lock}: "
            "see what it waits for in the Prefect UI, or end it"
        )

    return locked(lock, deadline_s=deadline_s, busy=busy)
