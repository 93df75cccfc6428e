"""The stop: where too many sessions are lost to training, no more are started until the operator has looked."""

import logging
from collections import deque

from sandboxes.gateway.errors import Stopped
from sandboxes.gateway.sessions.journal import Journal, JournalError

log = logging.getLogger(__name__)
WINDOW = 20  # sessions that the share is taken over
FACT = "stopped"


class MaskStop:
    """Counts, over the last `WINDOW` sessions, those that cannot be trained on."""

    def __init__(self, journal: Journal, max_fraction: float) -> None:
        self._journal = journal
        self._max_fraction = max_fraction
        self._last: deque[tuple[str, bool]] = deque(maxlen=WINDOW)  # session id, whether it is lost
        self.cause: str | None = None

    async def restore(self) -> None:
        """A stop outlives the process."""
        self.cause = await self._journal.fact(FACT)

    async def note(self, session_id: str, lost: str | None) -> None:
        """Take in a session that is over, or lost already; the first word on a session stands."""
        if any(known == session_id for known, _ in self._last):
            return
        self._last.append((session_id, lost is not None))
        count = sum(bad for _, bad in self._last)
        if self.cause is None and lost is not None and count > self._max_fraction * WINDOW:
            self.cause = f"{count} of the last {len(self._last)} sessions cannot be trained on; the last: {lost}"
            log.error("the gateway starts no more sessions: %s", self.cause)
            try:
                await self._journal.set_fact(FACT, self.cause)
            except JournalError as error:
                log.error("the stop is in memory only: %s", error)

    def check(self) -> None:
        """Stopped, with cause and remedy."""
        if self.cause is not None:
            raise Stopped(
                f"this gateway starts no more sessions: {self.cause}. Remove the cause, then reset the stop: "
                "POST /rl/reset_stop with the operator key. --max-mask-fraction sets how much loss is accepted",
                code="max_mask_fraction",
            )

    async def reset(self) -> str | None:
        """Start anew; returns the cause there was."""
        was, self.cause = self.cause, None
        self._last.clear()
        await self._journal.set_fact(FACT, None)
        return was
