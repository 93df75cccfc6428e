"""Which sessions are one worker's, where several worker processes share a gateway."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """Those sessions whose number leaves `index` when divided by `of`. A lone process has all of them."""

    index: int = 0
    of: int = 1

    def owner(self, number: int) -> int:
        """The worker of a session's number."""
        return number % self.of

    def has(self, number: int) -> bool:
        """Whether a session is this worker's."""
        return self.owner(number) == self.index

    def next_after(self, number: int) -> int:
        """The first number beyond that one which is this worker's."""
        return number + 1 + (self.index - number - 1) % self.of

    def part(self, whole: int) -> int:
        """This worker's part of a bound that is for all of them."""
        return -(-whole // self.of)


ALONE = Share()


def number_of(session_id: str) -> int | None:
    """The number a session id ends with; None where it is no session id."""
    found = re.search(r"-(\d{1,18})$", session_id)
    return int(found[1]) if found else None
