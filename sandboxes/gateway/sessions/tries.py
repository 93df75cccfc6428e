"""Requests that were left without an answer: one of the same body that an SDK sends again is the next try of such a one.

A body alone does not tell a retry from a call that is equal on purpose, such as another sample of one prompt. What tells
them apart is what became of the tries before. Requests with an idempotency key are told apart by that.
"""

from collections import Counter
from collections.abc import Iterable

from sandboxes.gateway.sessions.recorded import Recorded


class Tries:
    """Of one session. `calls`: those on record, in order."""

    def __init__(self, calls: Iterable[Recorded] = ()) -> None:
        self._unanswered: Counter[str] = Counter()  # by body digest
        for call in calls:
            intent = call.intent
            if intent.idempotency_key is not None or intent.first_choice != intent.call_id:
                continue
            if call.answered:  # the failures before it had their retry
                self._unanswered.pop(intent.body_digest, None)
            else:
                self.unanswered(intent.body_digest)

    def unanswered(self, body_digest: str) -> None:
        """The client was told to try again, or did not wait."""
        self._unanswered[body_digest] += 1

    def taken_up(self, body_digest: str) -> bool:
        """Whether a retry is the next try of an unanswered one, which then has had it."""
        if not self._unanswered[body_digest]:
            return False
        self._unanswered[body_digest] -= 1
        return True
