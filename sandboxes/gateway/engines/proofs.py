"""Waiting for the proof of weights that were swapped in under a call: what its last tokens were sampled from."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from sandboxes.gateway.engines.waiting import CURRENT, Waiting
from sandboxes.gateway.errors import EngineTrouble

DECIDED_S = 120.0  # a proof takes seconds; without one by then its deployment is dead
POLL_S = 0.2


class Proofs:
    """Which label takes the place of one that is not proven yet."""

    def __init__(self, label: Callable[[], Awaitable[str | None]]) -> None:
        self._ask = label
        self._asking = asyncio.Lock()
        self._told: tuple[float, str | None] = (-1.0, None)  # when it was asked last, and the label then

    async def decided(self, undecided: str) -> str | None:
        """The label that took the place of this one, which is still there after DECIDED_S where nothing did.

        All calls that wait for that share one question.
        """
        deadline = time.monotonic() + DECIDED_S
        while True:
            since = time.monotonic()
            async with self._asking:
                if self._told[0] < since:
                    asked = time.monotonic()
                    with suppress(EngineTrouble):  # a swap holds the answer back
                        self._told = (asked, await self._ask())
                told, label = self._told
            if (told >= since and label != undecided) or time.monotonic() >= deadline:
                return label
            with CURRENT.get() or Waiting():
                await asyncio.sleep(POLL_S)
