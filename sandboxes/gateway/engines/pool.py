"""The engines behind one gateway: which of them takes a session's calls, and which may not serve now.

A session goes to the first engine of its own order (rendezvous hashing), so that its prefix cache is used, every process
of a gateway chooses alike, and an engine that comes or goes moves only its share of the sessions.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from aiohttp import ClientError

from sandboxes.gateway.engines.engine import Engine
from sandboxes.gateway.engines.facts import Facts
from sandboxes.gateway.engines.member import Member
from sandboxes.gateway.engines.orders import NOBODY, Orders
from sandboxes.gateway.engines.split import NOT_SERVED, Split
from sandboxes.gateway.engines.waiting import CURRENT, Waiting
from sandboxes.gateway.errors import BadRequest, Conflict, EngineSwapped, EngineTrouble, GatewayError, NotFound
from sandboxes.gateway.sessions.sessions import Session

log = logging.getLogger(__name__)
LOOK_EVERY_S = 2.0
PAUSE_POLL_S = 0.05  # another process may end a pause, so it is looked for, not waited for
AVOID_S = 10.0  # after trouble a session's next tries go to its next engine for this long
LONGEST_PAUSE_S = 600.0


class Engines:
    """All engines of a gateway. Use `serving` around a call."""

    def __init__(self, urls: Sequence[str], orders: Orders, make: Callable[[str], Engine], *, wait_s: float) -> None:
        self._make = make
        self._orders = orders
        self._given = [url.rstrip("/") for url in urls]
        self._wait_s = wait_s
        self._members: dict[str, Member] = {}
        self._left: list[Member] = []  # removed, with calls that still run
        self._avoid: dict[str, tuple[str, float]] = {}  # session -> engine, until when
        self._agreed: Facts | None = None
        self._watching: asyncio.Task[None] | None = None
        self._sync()

    @property
    def members(self) -> list[Member]:
        """As they are ordered now, those the gateway was started with first."""
        self._sync()
        return list(self._members.values())

    def open(self) -> None:
        """Look after the engines from now on."""
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        if self._watching:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        for member in [*self._members.values(), *self._left]:
            await member.close()

    async def facts(self) -> Facts:
        """Version and template that all engines share. EngineTrouble where none answers."""
        found = await self._first(self._any(), lambda member: member.facts is not None and not member.misfit)
        if not self._agreed or not found:
            raise self._nobody(self.members, "there is no engine")
        return self._agreed

    async def admit(self, *, policy: bool, version: int | None = None) -> None:
        """Whether a new session would find an engine.

        Conflict where weights only lack a label, or no engine serves the version that was asked for; else EngineTrouble.
        """

        def takes(member: Member) -> bool:
            fits = version is None or member.version == version
            return fits and self._refusal(member, policy=policy, first_call=None) is None

        split, members = self._orders.split, self.members
        if split:  # `assigned` goes by what is known of the challenger
            await asyncio.gather(*(one.sure() for one in members if one.version == split.challenger))
        if await self._first(self._any(), takes):
            return
        if version is not None and not any(one.version == version for one in members):
            raise Conflict(
                f"no engine serves weight version {version}: {_serving(members)}. Deploy that version first, or ask for one "
                "that is served",
                code=NOT_SERVED,
            )
        reasons = {member.url: self._refusal(member, policy=policy, first_call=None) for member in members}
        if any(
            reason is None or self._paused(member) for member, reason in zip(members, reasons.values(), strict=True)
        ):
            return
        unlabelled = [one for one in members if one.state == "stale" and one.unlabelled and not one.restarted]
        if unlabelled:
            raise Conflict(f"the engine at {unlabelled[0].url} {unlabelled[0].stale()}", code="weights_unlabelled")
        raise self._nobody(members, "no engine takes a new session", policy=policy)

    def assigned(self, session_id: str) -> int | None:
        """The version that a new session keeps to while new sessions are split between two, else None.

        The challenger only where an engine takes its sessions now: nobody asked for it by name. With a share of 0 nothing is
        compared: a session is the champion's for as long as the split lasts, as those from before it are, and then anybody's.
        """
        split = self._orders.split
        if split is None or split.share == 0:
            return None
        version = split.version(session_id)
        able = any(
            one.version == version and self._refusal(one, policy=True, first_call=None) is None for one in self.members
        )
        return version if able else split.champion

    @asynccontextmanager
    async def serving(self, session: Session) -> AsyncIterator[Engine]:
        """The engine for one call of this session; how the call ends tells how the engine is.

        Waits where the engine is paused. EngineTrouble, naming each engine's state, where none may take the call.
        """
        member = await self._choose(session)
        probing = member.breaker.begin()
        member.running += 1
        try:
            yield member.engine
        except asyncio.CancelledError:
            member.breaker.give_up(probing=probing)
            raise
        except EngineSwapped:
            member.breaker.give_up(probing=probing)
            member.doubt()
            raise
        except Exception as error:  # whatever ends a call says something of its engine; it goes on to the caller
            if isinstance(error, GatewayError) and not isinstance(error, EngineTrouble):
                member.breaker.well()  # it understood, and refused
            else:
                self._trouble(member, session, error, probing=probing)
            raise
        else:
            member.breaker.well()
            self._avoid.pop(session.session_id, None)
        finally:
            member.running -= 1

    def _trouble(self, member: Member, session: Session, error: Exception, *, probing: bool) -> None:
        member.last_error = str(error) or type(error).__name__
        member.doubt()
        member.breaker.trouble(session.session_id, answered=answered(error), probing=probing)
        if len(self._avoid) > 10_000:
            self._avoid.clear()
        self._avoid[session.session_id] = (member.url, time.monotonic() + AVOID_S)
        # The operator is told the message (`GET /engines`); it may quote what was said, so no log has it.
        log.warning("a call of session %s failed on %s: %s", session.session_id, member.url, type(error).__name__)

    async def _choose(self, session: Session) -> Member:
        """The first engine in the session's order that may take the call; waits where those that could are paused."""
        deadline = time.monotonic() + self._wait_s
        while True:
            order = self._order(session.session_id)
            found = await self._first(order, lambda member: self._refuses(member, session) is None)
            if found:
                return found
            paused = [member for member in order if self._paused(member)]
            if not paused:
                raise self._nobody(order, "no engine can take this call", session=session)
            if time.monotonic() >= deadline:
                raise EngineTrouble(
                    f"the engine at {paused[0].url} is paused for a weight update; this call waited {self._wait_s:.0f} s",
                    code="engine_paused",
                    retry_after_s=5,
                )
            with CURRENT.get() or Waiting():  # for the engine: no time of the gateway's own
                await asyncio.sleep(PAUSE_POLL_S)

    async def _first(self, order: Sequence[Member], takes: Callable[[Member], bool]) -> Member | None:
        """The first that `takes`. Each is looked at only after those before it were refused, and once more where none is
        found: one that is slow to say how it is costs nothing where another one serves.
        """
        for stale in (False, True):
            for member in order:
                await member.sure(stale=stale)
                self._agree()
                if takes(member):
                    return member
        return None

    def _any(self) -> list[Member]:
        """All, in no session's order: first those that need not be looked at."""
        return sorted(self.members, key=lambda member: member.unsure)

    def _order(self, session_id: str) -> list[Member]:
        """This session's engines, best first; one that just failed it last."""
        ranked = sorted(self.members, key=lambda member: rank(session_id, member.url), reverse=True)
        url, until = self._avoid.get(session_id, ("", 0.0))
        return sorted(ranked, key=lambda member: member.url == url and time.monotonic() < until)

    @staticmethod
    def _paused(member: Member) -> bool:
        return member.state == "paused"

    def _refuses(self, member: Member, session: Session) -> str | None:
        first_call = session.calls[0].intent.started_at.timestamp() if session.calls else None
        reason = self._refusal(member, policy=session.row.mode == "policy", first_call=first_call, session=session)
        wanted = self.wanted(session)
        if reason is None and wanted is not None and member.version != wanted:
            return f"serves weight version {member.version}, and this session is of version {wanted}"
        return reason

    def wanted(self, session: Session) -> int | None:
        """The one version that may answer a session; None where any may.

        While sessions are split, those from before the split are the champion's.
        """
        if session.row.version is not None or session.row.mode != "policy":
            return session.row.version
        split = self._orders.split
        return split.champion if split else None

    @staticmethod
    def _refusal(
        member: Member, *, policy: bool, first_call: float | None, session: Session | None = None
    ) -> str | None:
        """Why this engine does not take the call; None where it does. `first_call`: of the session, None for a new one."""
        fault = member.fault()
        if fault and (policy or fault[0] != "stale"):
            return fault[1]
        drained = member.orders.of(member.url).drained_at
        if drained is not None and (first_call is None or first_call >= drained):
            return "is draining and takes no new session"
        facts = member.facts
        if session and facts and facts.template_digest != session.row.template_digest:
            return "renders with another template than this session began with; start a new session"
        return None

    def _nobody(
        self, members: Sequence[Member], what: str, *, policy: bool = True, session: Session | None = None
    ) -> EngineTrouble:
        """The error where none of `members` can serve."""
        parts = []
        for member in members:
            reason = (
                self._refuses(member, session) if session else self._refusal(member, policy=policy, first_call=None)
            )
            parts.append(f"the engine at {member.url} {reason or 'has not answered yet'}")
        states = {member.state for member in members}
        wanted = self.wanted(session) if session else None
        code = "engine_stale" if states == {"stale"} else None
        if wanted is not None and not any(member.version == wanted for member in members):
            code = NOT_SERVED
        wait = min([member.breaker.left_s for member in members if not member.breaker.closed] or [1.0])
        text = parts[0] if len(parts) == 1 else f"{what}: {'; '.join(parts)}"
        return EngineTrouble(text, code=code, retry_after_s=max(1, round(wait + 0.5)))

    async def _sure(self) -> None:
        await asyncio.gather(*(member.sure(stale=True) for member in self.members))
        self._agree()

    def _agree(self) -> None:
        """Engines of one gateway have one version and one template, or a session would go on with other tokens."""
        known = [(member, member.facts) for member in self._members.values() if member.facts]
        if known and not any(alike(facts, self._agreed) for _, facts in known):
            self._agreed = known[0][1]
        for member, facts in known:
            member.misfit = difference(facts, self._agreed)

    def _sync(self) -> None:
        """Bring the members in line with the orders, which another process may have changed."""
        orders = self._orders.all()
        added = [url for url, order in orders.items() if order.added and url not in self._given]
        wanted = [url for url in [*self._given, *added] if not (url in orders and orders[url].removed)]
        if wanted == list(self._members):
            return
        self._left += [member for url, member in self._members.items() if url not in wanted]
        self._members = {url: self._members.get(url) or Member(self._make(url), self._orders) for url in wanted}

    async def _watch(self) -> None:
        while True:
            looks = await asyncio.gather(*(member.look() for member in self.members), return_exceptions=True)
            for error in looks:
                if isinstance(error, BaseException):
                    log.error("looking after an engine failed: %r", error)
            self._agree()
            for member in [one for one in self._left if not one.running]:
                self._left.remove(member)
                await member.close()
            await asyncio.sleep(LOOK_EVERY_S)

    # Orders

    def member(self, url: str) -> Member:
        """NotFound, naming those there are, where the gateway has no such engine."""
        self._sync()
        found = self._members.get(url.rstrip("/"))
        if found is None:
            raise NotFound(f"no engine {url!r}; there are {', '.join(self._members)}")
        return found

    def drain(self, url: str) -> None:
        """No new session; those that have called it go on until they end."""
        with self._orders.change(self.member(url).url) as order:
            order.drained_at = order.drained_at or time.time()

    async def pause(self, url: str, for_s: float) -> None:
        """Calls wait, for at most `for_s` seconds: whoever paused may die. 0 ends the pause."""
        member = self.member(url)
        if not for_s:
            member.doubt()
            await member.look()
        with self._orders.change(member.url) as order:
            order.paused_until = time.time() + min(for_s, LONGEST_PAUSE_S)
            order.swaps += 1

    async def resume(self, url: str) -> None:
        """End a pause and a draining, and look at what the engine serves now before the next call."""
        member = self.member(url)
        member.doubt()
        await member.look()
        with self._orders.change(member.url) as order:
            order.paused_until, order.drained_at = 0.0, None

    async def prove(self, url: str, version: int) -> None:
        """Its weights were compared with those of `version` and are they. Conflict where its label says otherwise."""
        member = self.member(url)
        member.doubt()
        await member.look()
        if member.label != str(version):
            raise Conflict(f"the engine at {member.url} labels its weights {member.label!r}, not '{version}'")
        with self._orders.change(member.url) as order:
            order.trusted, order.swaps = member.start, order.swaps + 1

    async def split(self, split: Split | None) -> None:
        """Part new sessions between two versions, or do so no more. Conflict where one that would get some is not served."""
        if split is not None:
            await self._sure()
            due = ({split.challenger} if split.share > 0 else set()) | ({split.champion} if split.share < 1 else set())
            missing = due - {member.version for member in self.members if member.fault() is None}
            if missing:
                raise Conflict(
                    f"no engine serves weight version {min(missing)}, which would get sessions: {_serving(self.members)}",
                    code=NOT_SERVED,
                )
        self._orders.set_split(split)

    @property
    def parted(self) -> Split | None:
        """How new sessions are split now."""
        return self._orders.split

    def doubt(self, url: str) -> None:
        """Nobody knows its weights, until a version is proven."""
        with self._orders.change(self.member(url).url) as order:
            order.trusted, order.swaps = NOBODY, order.swaps + 1

    async def add(self, url: str) -> None:
        """One more engine. Conflict, with the reason, where it is not like the others; EngineTrouble where it is not there."""
        url = url.rstrip("/")
        if url in self._members:
            raise Conflict(f"{url} is one of the engines already")
        newcomer = Member(self._make(url), self._orders)
        try:
            await newcomer.look()
            await self._sure()
            if newcomer.facts is None:
                raise EngineTrouble(f"the engine at {url} {(newcomer.fault() or ('', 'does not answer'))[1]}")
            reason = difference(newcomer.facts, self._agreed)
            if reason:
                raise Conflict(f"the engine at {url} {reason}")
        finally:
            await newcomer.close()
        with self._orders.change(url) as order:
            order.added, order.removed, order.drained_at, order.paused_until = True, False, None, 0.0

    def remove(self, url: str) -> None:
        """Away with it; calls that run there go on. BadRequest for the last one."""
        member = self.member(url)
        if len(self._members) == 1:
            raise BadRequest(f"{member.url} is the only engine; add another one first", param="url")
        with self._orders.change(member.url) as order:
            order.added, order.removed, order.trusted = False, True, None


def _serving(members: Sequence[Member]) -> str:
    """What is served where, in words."""
    return ", ".join(f"{member.url} serves {member.label!r}" for member in members)


def answered(error: Exception) -> bool:
    """Whether the engine said itself that a call failed; else no answer came, or only part of one."""
    return not isinstance(error.__cause__, OSError | ClientError)  # a time-out is an OSError


def rank(session_id: str, url: str) -> bytes:
    """How much a session wants an engine: equal for all processes, even over sessions."""
    return hashlib.blake2b(f"{url}\n{session_id}".encode(), digest_size=8).digest()


def alike(facts: Facts, agreed: Facts | None) -> bool:
    return difference(facts, agreed) is None if agreed else False


def difference(facts: Facts, agreed: Facts | None) -> str | None:
    """Why an engine with these facts may not serve beside those of the others, in words that follow its URL."""
    if agreed is None:
        return None
    if facts.version != agreed.version:
        return f"is refused: its version is {facts.version}, that of the others {agreed.version}"
    if facts.template_digest != agreed.template_digest:
        return "is refused: its chat template or tokenizer is not that of the others"
    return None
