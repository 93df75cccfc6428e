"""Sessions: one per episode, each with a model key and a reward key. After a restart they continue."""

import asyncio
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakehouse.records import Mode, Status
from sandboxes.gateway.errors import Busy, Conflict, EngineTrouble, NotFound, Unauthorized
from sandboxes.gateway.journal import Journal, JournalError, SessionRow
from sandboxes.gateway.keys import hashed, new_key
from sandboxes.gateway.recorded import Answer, Recorded, prefix_digests

if TYPE_CHECKING:
    from sandboxes.gateway.calls import Flight

log = logging.getLogger(__name__)
TICKET_LIFE_S = 600.0  # a granted start that nobody used is reclaimed
KEPT_ENDED = 256  # ended sessions kept in memory; older ones are read from the journal again
SETTLE_S = 10.0  # for cancelled calls of an ending session to be recorded


@dataclass
class Session:
    """One episode's conversation with the model."""

    row: SessionRow
    state: str
    reason: str | None
    masked: str | None  # why no token of this session may be trained on
    calls: list[Recorded] = field(default_factory=list)
    rewards: list[tuple[str, float]] = field(default_factory=list)
    by_prefix: dict[str, Recorded] = field(default_factory=dict)
    flights: set["Flight"] = field(default_factory=set)
    used_at: float = field(default_factory=time.monotonic)

    @property
    def session_id(self) -> str:
        return self.row.session_id

    def remember(self, call: Recorded) -> None:
        """Make an answered call one that later conversations may continue."""
        assert call.answer is not None
        assert call.answer.message is not None
        turns = [*call.intent.messages, call.answer.message]
        self.by_prefix[prefix_digests(turns, call.intent.tools, call.intent.template_kwargs)[-1]] = call

    def last_answered(self) -> Recorded | None:
        return next((call for call in reversed(self.calls) if call.answered), None)

    def check_open(self) -> None:
        """Conflict, with the reason, where the session has ended."""
        if self.state != "open":
            raise Conflict(f"session {self.session_id} has ended: {self.reason}", code="session_ended")


class Sessions:
    """All sessions of this gateway."""

    def __init__(self, journal: Journal, *, max_open: int, idle_s: float) -> None:
        self._journal = journal
        self._max_open = max_open
        self._idle_s = idle_s
        self._open: dict[str, Session] = {}
        self._ended: OrderedDict[str, Session] = OrderedDict()
        self._by_key: dict[str, Session] = {}
        self._tickets: list[float] = []  # when each expires
        self._number = 0

    async def restore(self) -> int:
        """Take up the sessions that were open when the gateway stopped. Returns how many."""
        self._number = await self._journal.last_session_number()
        for row in await self._journal.open_sessions():
            self._admit(await self._load(row))
        return len(self._open)

    def grant(self) -> int:
        """Add a ticket for one more start; returns how many starts would succeed now."""
        self._tickets = [expiry for expiry in self._tickets if expiry > time.monotonic()] + [
            time.monotonic() + TICKET_LIFE_S
        ]
        return len(self._tickets) + max(0, self._max_open - len(self._open))

    async def start(
        self, task_id: str, mode: Mode, api_key: str | None, *, engine_version: str, template_digest: str
    ) -> tuple[Session, str, str]:
        """A new session, its model key and reward key. Conflict for a key that another task's active session holds."""
        if api_key:
            await self._refresh(task_id, api_key)
        await self._make_room()
        model_key, reward_key = api_key or new_key("model"), new_key("reward")
        self._number += 1
        row = SessionRow(
            self._number,
            f"{task_id}-{self._number}",
            task_id,
            mode,
            hashed(model_key),
            hashed(reward_key),
            "open",
            None,
            None,
            engine_version,
            template_digest,
        )
        session = Session(row, "open", None, None)
        self._admit(session)
        try:
            await self._journal.start_session(row)
        except JournalError as error:
            self._forget(session)
            raise EngineTrouble(f"the journal cannot be written, so nothing would be recorded: {error}") from error
        return session, model_key, reward_key

    async def end(self, session: Session, reason: str) -> None:
        """Close a session; running calls are cancelled and recorded. May be called twice."""
        if session.state != "open":
            return
        session.state, session.reason = "ended", reason
        self._open.pop(session.session_id, None)
        self._ended[session.session_id] = session
        for flight in list(session.flights):
            flight.cancel()
        await self.settle(session)
        try:
            await self._journal.end_session(session.session_id, reason)
        except JournalError as error:
            await self.mask(session, f"journal: {error}")
        while len(self._ended) > KEPT_ENDED:
            self._forget(self._ended.popitem(last=False)[1])

    async def settle(self, session: Session) -> None:
        """Wait, not for ever, until no call of this session is running."""
        if session.flights:
            await asyncio.wait([flight.task for flight in session.flights], timeout=SETTLE_S)

    async def mask(self, session: Session, reason: str) -> None:
        """Nothing of this session may be trained on: something could not be recorded. The agent goes on."""
        log.error("session %s is masked: %s", session.session_id, reason)
        session.masked = session.masked or reason
        try:
            await self._journal.mask(session.session_id, reason)
        except JournalError as error:
            log.error("the mask of session %s is in memory only: %s", session.session_id, error)

    async def by_id(self, session_id: str) -> Session:
        """NotFound where there never was one."""
        held = self._open.get(session_id) or self._ended.get(session_id)
        if held:
            return held
        row = await self._journal.session(session_id)
        if row is None:
            raise NotFound(f"no session {session_id!r}")
        return await self._load(row)

    async def by_key(self, key: str) -> tuple[Session, str]:
        """The session of a key and what the key is: "model" or "reward"."""
        if not key:
            raise Unauthorized("no key: send Authorization: Bearer <key>")
        key_digest = hashed(key)
        session = self._by_key.get(key_digest)
        if session is None:
            row = await self._journal.session_by_key(key_digest)
            if row is None:
                raise Unauthorized("this key belongs to no session")
            session = await self._load(row)
        return session, "model" if session.row.model_key == key_digest else "reward"

    async def close(self) -> None:
        """Stop running calls; the sessions stay open in the journal."""
        for session in list(self._open.values()):
            for flight in list(session.flights):
                flight.cancel(Status.INFRA_ERROR, "the gateway was stopped")
            await self.settle(session)

    async def _refresh(self, task_id: str, api_key: str) -> None:
        active = self._by_key.get(hashed(api_key))
        if active is None or active.state != "open":
            return
        if active.row.task_id != task_id:
            raise Conflict(f"this api_key is bound to the active session {active.session_id}; end that session first")
        await self.end(active, "refreshed: its key started a new session")

    async def _make_room(self) -> None:
        stale = time.monotonic() - self._idle_s
        if len(self._open) >= self._max_open:
            for session in [one for one in self._open.values() if one.used_at < stale and not one.flights]:
                await self.end(session, f"idle for more than {self._idle_s:.0f} s")
        if len(self._open) < self._max_open:
            return
        self._tickets = [expiry for expiry in self._tickets if expiry > time.monotonic()]
        if not self._tickets:
            raise Busy(
                f"{len(self._open)} sessions are open, the most this gateway takes; end some or raise --max-sessions",
                retry_after_s=5,
            )
        self._tickets.pop(0)

    def _admit(self, session: Session) -> None:
        self._open[session.session_id] = session
        self._by_key[session.row.model_key] = self._by_key[session.row.reward_key] = session

    def _forget(self, session: Session) -> None:
        self._open.pop(session.session_id, None)
        for key in (session.row.model_key, session.row.reward_key):
            if self._by_key.get(key) is session:
                del self._by_key[key]

    async def _load(self, row: SessionRow) -> Session:
        """A session out of the journal. Calls that were running when the gateway died are closed as failed."""
        session = Session(row, row.state, row.reason, row.masked)
        session.calls = await self._journal.calls(row.session_id)
        session.rewards = await self._journal.rewards(row.session_id)
        for call in session.calls:
            if call.answer is None:
                call.answer = Answer(status=Status.INFRA_ERROR, error="the gateway died while this call ran")
                await self._journal.answer(call.intent.call_id, call.answer)
            if call.answered:
                session.remember(call)
        if [call.intent.call_index for call in session.calls] != list(range(len(session.calls))):
            session.masked = session.masked or "calls are missing from the journal"
        return session
