"""How long a call waits for its engine, so that the gateway's own time can be told: all of it less the waiting."""

import time
from contextvars import ContextVar


class Waiting:
    """Seconds spent waiting: `with waiting: ...`. Waits that overlap, such as those of several choices, count once."""

    def __init__(self) -> None:
        self._total_s = 0.0
        self._depth = 0
        self._since = 0.0
        self.headers: dict[str, str] = {}  # to be sent to the engine along with the call's requests

    @property
    def seconds(self) -> float:
        """Up to now, also while a wait goes on."""
        return self._total_s + (time.monotonic() - self._since if self._depth else 0.0)

    def __enter__(self) -> None:
        """A wait begins."""
        if self._depth == 0:
            self._since = time.monotonic()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._total_s += time.monotonic() - self._since


# Set where a call begins; tasks that the call starts inherit it.
CURRENT: ContextVar[Waiting | None] = ContextVar("waiting", default=None)
