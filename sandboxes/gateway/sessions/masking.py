"""The stop: where too many sessions are lost to training, no more are started until the operator has looked."""

import logging

from sandboxes.gateway.errors import Stopped
from sandboxes.gateway.sessions.common import CommonFile

log = logging.getLogger(__name__)
WINDOW = 20  # sessions that the share is taken over


class MaskStop:
    """Counts, over the last `WINDOW` sessions of all workers, those that cannot be trained on. Outlives the processes."""

    def __init__(self, common: CommonFile, max_fraction: float) -> None:
        self._common = common
        self._max_fraction = max_fraction

    @property
    def cause(self) -> str | None:
        """Why no more sessions are started; None where they are."""
        return self._common.read().stopped

    def note(self, session_id: str, lost: str | None) -> None:
        """Take in a session that is over, or lost already; the first word on a session stands."""
        if any(known == session_id for known, _ in self._common.read().ended):
            return
        try:
            with self._common.change() as common:
                common.ended = [*common.ended, (session_id, lost is not None)][-WINDOW:]
                count = sum(bad for _, bad in common.ended)
                if common.stopped is None and lost is not None and count > self._max_fraction * WINDOW:
                    common.stopped = (
                        f"{count} of the last {len(common.ended)} sessions cannot be trained on; the last: {lost}"
                    )
                    log.error("the gateway starts no more sessions: %s", common.stopped)
        except OSError as error:
            log.error("how a session ended is known to this process only: %s", error)

    def check(self) -> None:
        """Stopped, with cause and remedy."""
        if self.cause is not None:
            raise Stopped(
                f"this gateway starts no more sessions: {self.cause}. Remove the cause, then reset the stop: "
                "POST /rl/reset_stop with the operator key. --max-mask-fraction sets how much loss is accepted",
                code="max_mask_fraction",
            )

    def reset(self) -> str | None:
        """Start anew; returns the cause there was. OSError where it cannot be written down."""
        with self._common.change() as common:
            was, common.stopped, common.ended = common.stopped, None, []
        return was
