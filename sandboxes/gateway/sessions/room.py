"""How many sessions may be open at once, over all workers of a gateway; a ticket is room for one more."""

import logging
import time

from sandboxes.gateway.errors import Busy, JournalTrouble
from sandboxes.gateway.sessions.common import Common, CommonFile
from sandboxes.gateway.sessions.share import Share

log = logging.getLogger(__name__)
TICKET_LIFE_S = 600.0  # a granted start that nobody used is reclaimed


class Room:
    """One worker's view of it. `most`: open sessions of the whole gateway."""

    def __init__(self, common: CommonFile, share: Share, most: int) -> None:
        self._common = common
        self._share = share
        self._most = most

    @property
    def full(self) -> bool:
        """Whether a start would need a ticket."""
        return self._open(self._common.read()) >= self._most

    def grant(self) -> int:
        """Add a ticket for one more start; returns how many starts would succeed now."""
        with self._common.change() as common:
            common.tickets = [*_valid(common.tickets), time.time() + TICKET_LIFE_S]
            return len(common.tickets) + max(0, self._most - self._open(common))

    def take(self, mine: int) -> None:
        """One more session, beside the `mine` of this worker. Busy where there is no room and no ticket."""
        try:
            with self._common.change() as common:
                common.open[self._share.index] = mine
                count = self._open(common)
                common.tickets = _valid(common.tickets)
                if count >= self._most:
                    if not common.tickets:
                        raise Busy(
                            f"{count} sessions are open, the most this gateway takes; end some or raise --max-sessions",
                            retry_after_s=5,
                        )
                    common.tickets.pop(0)
                common.open[self._share.index] = mine + 1
        except OSError as error:
            raise JournalTrouble(f"the sessions cannot be counted: {error}") from error

    def tell(self, mine: int) -> None:
        """How many sessions of this worker are open now."""
        try:
            with self._common.change() as common:
                common.open[self._share.index] = mine
        except OSError as error:
            log.error("the other workers are not told how many sessions are open: %s", error)

    def _open(self, common: Common) -> int:
        """Of all workers there are; an earlier run may have had more."""
        return sum(common.open.get(index, 0) for index in range(self._share.of))


def _valid(tickets: list[float]) -> list[float]:
    return [expiry for expiry in tickets if expiry > time.time()]
