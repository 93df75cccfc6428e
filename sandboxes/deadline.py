"""One deadline for whatever is waited for on the way to one thing."""

import time
from contextvars import ContextVar, Token


class DeadlineExceeded(TimeoutError):
    """A deadline came first. The text says whose it was and what was waited for."""


class Deadline:
    """A moment on the monotonic clock, `seconds` from now, by which `what` must be done.

    Used as a context it is the current one, for whoever must not wait longer than it without being told of it: a box clips the
    time of each command by it. An inner one never ends later than that around it. `after_s`: for how long what was begun under
    it may still be needed when it is over.
    """

    def __init__(self, seconds: float, what: str, *, after_s: float = 0.0) -> None:
        outer = Deadline.current()
        self.seconds = seconds if outer is None else min(seconds, outer.left())
        self.what = what
        self._end = time.monotonic() + self.seconds
        self._last: float = self._end + after_s if outer is None else max(self._end + after_s, outer._last)
        self._tokens: list[Token[Deadline | None]] = []

    @staticmethod
    def current() -> "Deadline | None":
        """The one this task is under."""
        return _CURRENT.get()

    def left(self) -> float:
        """Seconds until then; 0 after it."""
        return max(0.0, self._end - time.monotonic())

    def lasts(self) -> float:
        """Seconds until what was begun under it, or under one around it, is needed no more; 0 after it."""
        return max(0.0, self._last - time.monotonic())

    def clip(self, seconds: float) -> float:
        """As many seconds, or those that are left."""
        return min(seconds, self.left())

    def exceeded(self, meanwhile: str) -> DeadlineExceeded:
        """The exception for one who waited until the end. `meanwhile` is what went on: 'the command ran'."""
        return DeadlineExceeded(f"the {self.seconds:.4g} s for {self.what} were over while {meanwhile}")

    def __enter__(self) -> "Deadline":
        self._tokens.append(_CURRENT.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._tokens.pop())


_CURRENT: ContextVar[Deadline | None] = ContextVar("deadline", default=None)
