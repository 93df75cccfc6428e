"""One engine among those a gateway uses: whether it answers, who started it, what it says it serves, how calls fare."""

import asyncio
import time
from dataclasses import dataclass
from typing import Literal

from sandboxes.gateway.engines.engine import Engine
from sandboxes.gateway.engines.facts import Facts
from sandboxes.gateway.engines.labels import DOUBTED, claimed
from sandboxes.gateway.engines.orders import NOBODY, Orders
from sandboxes.gateway.engines.upstream import Upstream
from sandboxes.gateway.errors import EngineSilent, EngineTrouble, GatewayError

State = Literal["serving", "draining", "paused", "stale", "broken"]

LOOK_S = 5.0  # how long the engine may take to say how it is
START_LIFE_S = 15.0  # its start is asked for again after this while all is well: metrics cost the engine some 10 ms
MISSES = 3  # looks without an answer in time before an engine counts as broken; a refused connection counts at once
DEFAULT_LABEL = "default"  # vLLM's label of weights from its start until somebody sets one
UNTOLD = "untold"  # the start of an engine without /metrics: only its label can show that it was started again
START_METRIC = "process_start_time_seconds"


class Breaker:
    """Opens after consecutive trouble, lets one call through after a while, closes when that one is well.

    An engine that answers, but with an error, may have been given something it cannot bear: such trouble counts only where
    several sessions have it, or one client could take the engine from all others.
    """

    THRESHOLD = 5  # calls in trouble, one after another
    WITNESSES = 3  # sessions they must be of; a call that got no answer at all is a witness by itself
    OPEN_S = 5.0  # at first; doubles while the probing call is in trouble too
    LONGEST_S = 60.0

    def __init__(self) -> None:
        self._troubles = 0
        self._witnesses: set[object] = set()
        self._open_s = self.OPEN_S
        self._until: float | None = None
        self._probing = False

    @property
    def closed(self) -> bool:
        return self._until is None

    @property
    def left_s(self) -> float:
        """Until a call may probe; 0 where one may now."""
        return 0.0 if self._until is None else max(0.0, self._until - time.monotonic())

    def lets_through(self) -> bool:
        return self.closed or (not self._probing and self.left_s == 0.0)

    def begin(self) -> bool:
        """A call starts. Whether it is the one that probes; it must then end in `well`, `trouble` or `give_up`."""
        self._probing = self._probing or not self.closed
        return not self.closed

    def well(self) -> None:
        self._troubles, self._open_s, self._until, self._probing = 0, self.OPEN_S, None, False
        self._witnesses.clear()

    def trouble(self, session_id: str, *, answered: bool, probing: bool) -> None:
        """A call of this session failed; `answered`: the engine said so itself."""
        self._troubles += 1
        self._witnesses.add(session_id if answered else object())
        if probing:
            self._open_s = min(2 * self._open_s, self.LONGEST_S)
        enough = self._troubles >= self.THRESHOLD and len(self._witnesses) >= self.WITNESSES
        if probing or (self.closed and enough):
            self._until, self._probing = time.monotonic() + self._open_s, False

    def give_up(self, *, probing: bool) -> None:
        """A call ended without telling anything of the engine: its client left."""
        if probing:
            self._probing = False


@dataclass(frozen=True)
class Seen:
    """One look at an engine. `missed`: it did not answer in time, which says nothing; `error`: it cannot serve."""

    error: str | None = None
    missed: bool = False
    start: str = UNTOLD  # changes when the engine's process is another one
    label: str | None = None  # of the weights; None where it is not told, for one while they are being swapped


class Member:
    """One engine with all that is known of it. Two processes of a gateway have one each; `orders` they share."""

    def __init__(self, engine: Engine, orders: Orders) -> None:
        self.engine = engine
        self.url = engine.url
        self.orders = orders
        self.breaker = Breaker()
        self.running = 0  # calls, of this process
        self.facts: Facts | None = None
        self.misfit: str | None = None  # why it must not serve beside the others
        self.label: str | None = None
        self.start: str | None = None
        self.last_error: str | None = None
        self._down: str | None = None
        self._misses = 0
        self._start_until = 0.0
        self._doubts = 1  # reasons to look again so far,
        self._settled = 0  # and how many of them a look has answered
        self._swaps = 0  # as ordered when it was last looked at
        self._began = 0.0  # the last look
        self._looking = asyncio.Lock()
        self._http = Upstream(self.url, engine.guard, deadline_s=LOOK_S, connections=4)

    async def close(self) -> None:
        await self._http.close()
        await self.engine.close()

    def fault(self) -> tuple[State, str] | None:
        """The state that keeps calls away and why, in words that follow the engine's URL; None where it may serve."""
        order = self.orders.of(self.url)
        if self._down or self.misfit:
            return "broken", self._down or self.misfit or ""
        if order.paused_s():
            return "paused", "is paused for a weight update"
        if not self.breaker.lets_through():
            return "broken", f"failed {Breaker.THRESHOLD} calls in a row, the last with: {self.last_error}"
        stale = self.stale()
        return ("stale", stale) if stale else None

    def stale(self) -> str | None:
        """Why its weights, or the log-probs it tells of them, may not be believed; None where they may."""
        if self.facts and not self.facts.processed:
            return (
                "tells log-probs that are not those of the distribution it samples from (they stay as they are at another "
                "temperature): start it with --logprobs-mode processed_logprobs"
            )
        if self.restarted or self.unproven:
            return (
                f"was started again, or a deployment failed there, and its weights (labelled {self.label!r}) are not proven: "
                "deploy a version, or POST /engines/proven"
            )
        if self.unlabelled:
            return (
                f"serves weights labelled {self.label!r}, which is no registered version; label them first: "
                f'POST {self.url}/update_weight_version {{"new_version": "1"}}'
            )
        return None

    @property
    def restarted(self) -> bool:
        """Whether another process answers than the one whose weights are trusted."""
        trusted = self.orders.of(self.url).trusted
        return self.start is not None and trusted is not None and self.start != trusted

    @property
    def unproven(self) -> bool:
        """Whether a deployment put its weights there and did not prove them, or not yet."""
        return self.label is not None and (self.label == DOUBTED or claimed(self.label) is not None)

    @property
    def unlabelled(self) -> bool:
        return self.label is not None and not self.label.isdecimal() and not self.unproven

    @property
    def version(self) -> int | None:
        """Of the weights it serves; None where its label is no version."""
        return int(self.label) if self.label is not None and self.label.isdecimal() else None

    @property
    def state(self) -> State:
        fault = self.fault()
        if fault:
            return fault[0]
        if not self.breaker.closed:
            return "broken"  # the next call finds out
        return "draining" if self.orders.of(self.url).drained_at is not None else "serving"

    def doubt(self) -> None:
        """Look before the next call."""
        self._doubts += 1

    @property
    def unsure(self) -> bool:
        """Whether something happened that it was not looked at since."""
        return self._settled != self._doubts or self._swaps != self.orders.of(self.url).swaps

    async def sure(self, *, stale: bool = False) -> None:
        """Look, where there is doubt; with `stale` also where it was: somebody may have labelled or proven it since.

        Not while it is paused: it takes no call then, and may be slow to answer. The first look after that finds out.
        """
        if self.facts is not None and self.orders.of(self.url).paused_s():
            return
        asked = time.monotonic()
        if self.unsure or (stale and self.stale()):
            async with self._looking:
                # One look serves all who waited for it.
                if self.unsure or (stale and self.stale() and self._began < asked):
                    await self._look()

    async def look(self) -> None:
        """Ask the engine how it is and take in what it says."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        self._began = time.monotonic()
        doubts, swaps = self._doubts, self.orders.of(self.url).swaps  # one that arises meanwhile asks for another look
        seen = await self._ask()
        await self._take(seen)
        self._settled, self._swaps = doubts, swaps

    async def _take(self, seen: Seen) -> None:
        self._misses = self._misses + 1 if seen.missed else 0
        if seen.missed and self._misses < MISSES:
            return
        self._down = seen.error
        if seen.error:
            self.last_error = seen.error
            self._start_until = 0.0
            return
        self._believe(seen)
        try:
            self.facts = await self.engine.facts()
        except GatewayError as error:
            self._down = self.last_error = error.message.removeprefix(f"the engine at {self.url} ")

    def _believe(self, seen: Seen) -> None:
        if self.start is not None and seen.start != self.start:
            self.facts = None
            self.engine.forget()
            self.breaker.well()
        trusted = self.orders.of(self.url).trusted
        restarted = seen.label == DEFAULT_LABEL and self.label is not None and self.label.isdecimal()
        if trusted is None or (restarted and trusted == seen.start):
            with self.orders.change(self.url) as order:
                order.trusted = NOBODY if restarted else seen.start
        self.start = seen.start
        if seen.label:
            self.label = seen.label
            self.engine.labelled(seen.label)

    async def _ask(self) -> Seen:
        try:
            health = await self._http.get("/health")
            if health.status != 200:
                return Seen(error=f"says that it is not healthy ({health.status} from /health)")
            start, label = await asyncio.gather(self._start(), self._label())
        except EngineSilent:
            return Seen(error=f"did not answer within {LOOK_S:.0f} s", missed=True)
        except EngineTrouble as error:
            return Seen(error=f"does not answer: {error.__cause__!r}")
        return Seen(start=start, label=label)

    async def _start(self) -> str:
        """When the engine's process was started, out of its metrics; two starts never have the same."""
        if self.start is not None and time.monotonic() < self._start_until and not self.unsure:
            return self.start
        answer = await self._http.get("/metrics")
        self._start_until = time.monotonic() + START_LIFE_S
        values = [line.split()[1] for line in answer.text.splitlines() if line.startswith(START_METRIC + " ")]
        return values[0] if answer.status == 200 and values else UNTOLD

    async def _label(self) -> str | None:
        """The label of the weights. A swap under way holds the answer back, which is no fault of the engine."""
        try:
            answer = await self._http.get("/weight_info")
        except EngineSilent:
            return None
        return answer.told("weight_version") if answer.status == 200 else None
