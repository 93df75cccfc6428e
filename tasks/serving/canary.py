"""A canary: a share of the sessions goes to a challenger until it is told apart from the champion, or the time is over.

The order of things, apart from Prefect and the servers, which are `Parts`. Sessions keep to their version from the first call
to the last, so engines are given another one only once the sessions on them have ended, or have had their time to.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from lakehouse.evaluation.sequential import Comparison

Better = Literal["promote", "ask"]
Worse = Literal["roll_back", "ask"]
Undecided = Literal["ask", "roll_back", "promote"]
Action = Literal["promote", "roll_back", "ask"]

LOCK = "canary.lock"  # in the home folder, held by the canary at work; the kernel lets go of it where that is killed
LEASE_S = 300.0  # without a sign of life for so long the gateway gives the challenger no more sessions


@dataclass(frozen=True)
class Terms:
    """What is wanted of a canary. Times in seconds."""

    share: float
    tolerance: float  # how much worse, in rewards, a challenger may be and still be promoted
    deadline_s: float
    poll_s: float
    drain_s: float
    if_not_worse: Better
    if_worse: Worse
    if_undecided: Undecided


@dataclass(frozen=True)
class Decision:
    """How a canary ended: what is done, and why, for people."""

    action: Action
    reason: str
    comparison: Comparison | None


class Parts(Protocol):
    """What a canary acts on. All are bounded in time; each may be called again."""

    async def part(self, share: float, for_s: float) -> None:
        """Give the challenger this share of new sessions, for so long."""

    async def open_sessions(self, which: Literal["champion", "challenger"]) -> int:
        """Sessions that keep to that version and have not ended."""

    async def compare(self) -> Comparison:
        """The rewards until now."""

    async def lost(self) -> str | None:
        """Why the challenger is not served any more; None where it is."""


async def watch(parts: Parts, terms: Terms, tell: Callable[[Comparison], None] = lambda _: None) -> Decision:
    """Send sessions and compare, until there is something to decide."""
    deadline = time.monotonic() + terms.deadline_s
    while True:
        lost = await parts.lost()
        if lost is None:
            await parts.part(terms.share, max(LEASE_S, 3 * terms.poll_s))
        found = await parts.compare()
        tell(found)
        decision = decide(found, terms, lost=lost, late=time.monotonic() >= deadline)
        if decision is not None:
            return decision
        await asyncio.sleep(min(terms.poll_s, max(0.0, deadline - time.monotonic())))


def decide(found: Comparison, terms: Terms, *, lost: str | None, late: bool) -> Decision | None:
    """What to do now; None: go on. Of a challenger whose engine failed nothing is learnt: it is rolled back."""
    if lost is not None:
        return Decision("roll_back", f"the challenger is not served any more: {lost}", found)
    ends = f"{found.low:+.3f} to {found.high:+.3f} ({found.confidence:.0%}, at any time)"
    seen = f"over {found.challenger_sessions} sessions of the challenger and {found.champion_sessions} of the champion"
    verdict = found.verdict(terms.tolerance)
    if verdict == "not worse":
        return Decision(terms.if_not_worse, f"the challenger's reward differs by {ends} {seen}: not worse", found)
    if verdict == "worse":
        return Decision(terms.if_worse, f"the challenger's reward differs by {ends} {seen}: worse", found)
    if late:
        return Decision(terms.if_undecided, f"not told apart in time: {ends} {seen}", found)
    return None


async def drain(parts: Parts, action: Action, terms: Terms) -> int:
    """Wait until the sessions of the version that goes have ended, for `drain_s` at most; how many have not.

    New ones go to the version that stays: to the challenger where it is promoted, else to the champion.
    """
    leaving: Literal["champion", "challenger"] = "champion" if action == "promote" else "challenger"
    deadline = time.monotonic() + terms.drain_s
    while True:
        await parts.part(1.0 if action == "promote" else 0.0, max(LEASE_S, 3 * terms.poll_s))
        left = await parts.open_sessions(leaving)
        if not left or time.monotonic() >= deadline:
            return left
        await asyncio.sleep(min(terms.poll_s, 5.0, max(0.0, deadline - time.monotonic())))
