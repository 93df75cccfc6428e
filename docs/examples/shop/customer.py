"""A customer with a script: answers what is asked, says yes, pushes twice, and leaves."""

import re
from collections.abc import Callable

from shop.scenarios import Scenario

PATIENCE = 3  # answers that lead nowhere, before the customer leaves

_ASKED: tuple[tuple[str, Callable[[Scenario], str]], ...] = (
    (r"order (number|no|id)|which order|number of (the|your) order", lambda case: f"The order is {case.order}."),
    (r"e-?mail|verify|identity", lambda case: f"My e-mail is {case.email}."),
    (r"opened|condition|broken|damage|wrong with|what happened|describe|reason|why", lambda case: case.detail),
    (
        r"(?<!mail )address|where (to|should)",
        lambda case: f"Send it to {case.address}." if case.address else "The address stays.",
    ),
    (r"shall i|should i|would you like|do you want|is that (ok|all right)|proceed|confirm", lambda _: "Yes, please."),
)


class Customer:
    """One conversation's customer: the same words are always answered in the same way."""

    def __init__(self, case: Scenario) -> None:
        self._case = case
        self._told: set[str] = set()
        self._patience = PATIENCE

    def answer(self, text: str) -> str | None:
        """What the customer says to this; None where the customer has left."""
        said = [say(self._case) for pattern, say in _ASKED if re.search(pattern, text.lower())]
        new = [one for one in said if one not in self._told]
        self._told.update(new)
        if new:
            return " ".join(new)
        self._patience -= 1
        if self._patience <= 0:
            return None
        return "I have told you already. What will you do about it?"
