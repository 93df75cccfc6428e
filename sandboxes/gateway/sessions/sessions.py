"""Sessions: one per episode, each with a model key and a reward key. After a restart they continue."""

import asyncio
import hmac
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from lakehouse.records import Mode, Status, now
from sandboxes.gateway.errors import Conflict, GatewayError, Gone, JournalTrouble, NotFound, Unauthorized
from sandboxes.gateway.sessions.budget import Budget, Limits
from sandboxes.gateway.sessions.common import common_file
from sandboxes.gateway.sessions.flight import Flight
from sandboxes.gateway.sessions.journal import Journal, JournalError
from sandboxes.gateway.sessions.keys import hashed, new_key
from sandboxes.gateway.sessions.masking import MaskStop
from sandboxes.gateway.sessions.recorded import Answer, Recorded
from sandboxes.gateway.sessions.room import Room
from sandboxes.gateway.sessions.schema import KeyRow, RewardRow, SessionRow
from sandboxes.gateway.sessions.share import ALONE, Share
from sandboxes.gateway.sessions.tree import Tree
from sandboxes.gateway.sessions.tries import Tries
from sandboxes.gateway.sessions.vault import Unreadable

log = logging.getLogger(__name__)
KEPT_ENDED = 64  # ended sessions kept in memory; older ones are read from the journal again
SETTLE_S = 10.0  # for cancelled calls of an ending session to be recorded


@dataclass(eq=False)
class Session:
    """One episode's conversation with the model."""

    row: SessionRow
    state: str
    reason: str | None
    masked: str | None  # why no token of this session may be trained on
    calls: list[Recorded] = field(default_factory=list)
    rewards: list[RewardRow] = field(default_factory=list)
    by_prefix: dict[str, Recorded] = field(default_factory=dict)
    flights: set[Flight] = field(default_factory=set)
    used_at: float = field(default_factory=time.monotonic)
    exact: int = 0  # answered calls whose tokens are exact
    budget_hit: str | None = None
    key_digests: list[str] = field(default_factory=list)  # of a session in memory

    def __post_init__(self) -> None:
        self.tree = Tree(self.calls)
        self.tries = Tries()
        limits = Limits.model_validate_json(self.row.limits)
        self.budget = Budget(limits, self.calls, datetime.fromisoformat(self.row.started_at))

    @property
    def session_id(self) -> str:
        return self.row.session_id

    @property
    def delivered_fraction(self) -> float | None:
        """Answered calls whose tokens are exact over dispatched calls; 0 where the session is masked, None without calls."""
        return None if not self.calls else 0.0 if self.masked else self.exact / len(self.calls)

    @property
    def lost(self) -> str | None:
        """Why this session cannot be trained on in full: masked, or an answered call whose tokens are not exact."""
        if self.masked:
            return self.masked
        bad = (call.answer for call in self.calls if call.answered and call.answer)
        errors = [answer.error or "tokens are missing" for answer in bad if answer.token_status != "exact"]  # noqa: S105
        return errors[-1] if errors else None

    def remember(self, call: Recorded) -> None:
        """Make an answered call one that later conversations may continue."""
        assert call.answer is not None
        self.by_prefix[call.with_answer] = call
        self.exact += call.answer.token_status == "exact"  # noqa: S105 - a status, no secret

    def last_answered(self) -> Recorded | None:
        return next((call for call in reversed(self.calls) if call.answered), None)

    def check_open(self) -> None:
        """Conflict or Gone, with the reason, where the session takes no more calls."""
        self.check_unsealed()
        if self.state != "open":
            raise Conflict(f"session {self.session_id} has ended: {self.reason}", code="session_ended")

    def check_unsealed(self) -> None:
        """Gone where the record is closed."""
        if self.state == "sealed":
            raise Gone(
                f"session {self.session_id} is sealed: its record has been handed over and does not change any more; "
                "start a new session",
                code="session_sealed",
            )


class Sessions:
    """All sessions of this gateway, or those that are one worker's share. `max_open`: of the whole gateway."""

    def __init__(
        self,
        journal: Journal,
        *,
        max_open: int,
        idle_s: float,
        max_mask_fraction: float = 1.0,
        model_rewards: bool = False,
        share: Share = ALONE,
        tell: Callable[[str, Session], None] = lambda _event, _session: None,
    ) -> None:
        self._journal = journal
        self._share = share
        self._tell = tell  # of what becomes of a session: started, restored, rewarded, masked, ended, sealed
        self._idle_s = idle_s
        self._model_scopes = "model reward" if model_rewards else "model"
        common = common_file(journal.folder, share)
        self.stop = MaskStop(common, max_mask_fraction)
        self._room = Room(common, share, max_open)
        self._open: dict[str, Session] = {}
        self._ended: OrderedDict[str, Session] = OrderedDict()
        self._keys: dict[str, KeyRow] = {}  # of sessions in memory
        self._number = 0
        self._refreshing = asyncio.Lock()
        self._past = (0, 0)  # exact and dispatched calls of sessions that ended since the start

    @property
    def open(self) -> list[Session]:
        return list(self._open.values())

    @property
    def delivered_fraction(self) -> float | None:
        """Of all sessions since the start of this process; None without calls."""
        exact = self._past[0] + sum(session.exact for session in self._open.values() if not session.masked)
        dispatched = self._past[1] + sum(len(session.calls) for session in self._open.values())
        return exact / dispatched if dispatched else None

    async def restore(self) -> int:
        """Take up the sessions that were open when the gateway stopped. Returns how many."""
        self._number = await self._journal.last_session_number()
        await self._journal.sweep(self._share.has)
        await self._restore_masks()
        for row in await self._journal.open_sessions():
            if not self._share.has(row.n):
                continue
            try:
                session = await self._load(row)
            except Unreadable as error:
                log.error("session %s is ended: %s", row.session_id, error)
                await self._journal.end_session(row.session_id, "its record cannot be read", str(error))
                continue
            await self._close_dead(session)
            session.tries = Tries(session.calls)
            self._admit(session, await self._journal.keys(row.session_id))
            self._tell("restored", session)
        self._room.tell(len(self._open))
        return len(self._open)

    def grant(self) -> int:
        """Add a ticket for one more start; returns how many starts would succeed now."""
        return self._room.grant()

    async def start(
        self,
        task_id: str,
        mode: Mode,
        api_key: str | None,
        *,
        engine_version: str,
        template_digest: str,
        limits: Limits | None = None,
        key_life_s: float | None = None,
        subject: str | None = None,
        version: Callable[[str], int | None] = lambda _session_id: None,
    ) -> tuple[Session, str, str]:
        """A new session, its model key and reward key. `version`: the weight version that a session of this id keeps to.

        Conflict for a key that another task's active session holds;
        Stopped where too many sessions are lost; Busy where there is no room."""
        self.stop.check()
        async with self._refreshing if api_key else nullcontext():  # two at once would leave one that no key opens
            if api_key:
                await self._refresh(task_id, api_key)
            await self._make_room()
            self._room.take(len(self._open))
            model_key, reward_key = api_key or new_key("model"), new_key("reward")
            self._number = self._share.next_after(self._number)
            session_id = f"{task_id}-{self._number}"
            row = SessionRow(
                n=self._number,
                session_id=session_id,
                task_id=task_id,
                mode=mode,
                engine_version=engine_version,
                template_digest=template_digest,
                limits=(limits or Limits()).model_dump_json(exclude_none=True),
                subject=subject,
                version=version(session_id),
                started_at=now().isoformat(),
            )
            keys = [
                _key(row.session_id, model_key, self._model_scopes, key_life_s),
                _key(row.session_id, reward_key, "reward", key_life_s),
            ]
            session = Session(row, "open", None, None)
            self._admit(session, keys)
            try:
                await self._journal.start_session(row, keys)
            except JournalError as error:
                self._forget(session)
                self._room.tell(len(self._open))
                raise JournalTrouble(f"the journal cannot be written, so nothing would be recorded: {error}") from error
            self._tell("started", session)
            return session, model_key, reward_key

    async def end(self, session: Session, reason: str) -> None:
        """Close a session; running calls are cancelled and recorded. May be called twice."""
        if session.state != "open":
            return
        session.state, session.reason = "ended", reason
        self._open.pop(session.session_id, None)
        self._ended[session.session_id] = session
        self._room.tell(len(self._open))
        for flight in list(session.flights):
            flight.cancel()
        await self.settle(session)
        try:
            await self._journal.end_session(session.session_id, reason, session.masked)
        except JournalError as error:
            await self.mask(session, f"journal: {error}")
        self._tell("ended", session)
        exact, dispatched = self._past
        self._past = (exact + (0 if session.masked else session.exact), dispatched + len(session.calls))
        self.stop.note(session.session_id, session.lost)
        while len(self._ended) > KEPT_ENDED:
            self._forget(next(iter(self._ended.values())))

    async def seal(self, session: Session) -> None:
        """Close the record for good, ending the session where it is open. May be called twice."""
        if session.state == "sealed":
            return
        await self.end(session, "sealed by the operator")
        await self.settle(session)
        if session.flights:
            raise Conflict(f"calls of session {session.session_id} are still running; seal it again in a moment")
        try:
            await self._journal.seal_session(session.session_id)
        except JournalError as error:
            raise JournalTrouble(f"the journal cannot be written, the session is not sealed: {error}") from error
        session.state = "sealed"
        self._tell("sealed", session)
        self._forget(session)

    async def shred(self, session: Session) -> None:
        """Seal a session and destroy the key of its record: what it said is in the lake, as far as it may be kept."""
        await self.seal(session)
        try:
            await self._journal.shred(session.session_id)
        except JournalError as error:
            raise JournalTrouble(f"the key of session {session.session_id} is not destroyed: {error}") from error

    async def settle(self, session: Session) -> None:
        """Wait, not for ever, until no call of this session is running."""
        if session.flights:
            await asyncio.wait([flight.task for flight in session.flights], timeout=SETTLE_S)

    async def mask(self, session: Session, reason: str) -> None:
        """Nothing of this session may be trained on: something could not be recorded. The agent goes on."""
        log.error("session %s is masked: %s", session.session_id, reason)
        if session.masked is None:
            session.masked = reason
            self._tell("masked", session)
        self.stop.note(session.session_id, session.masked)
        try:
            await self._journal.mask(session.session_id, session.masked)
        except JournalError:
            self._journal.leave_mask(session.row.n)

    async def note_budget(self, session: Session, error: GatewayError) -> None:
        """Record the first budget that ended a session's calls."""
        if error.code != "budget_exhausted" or session.budget_hit:
            return
        session.budget_hit = error.message
        try:
            await self._journal.budget_hit(session.session_id, error.message)
        except JournalError as trouble:
            log.error("what ended session %s's calls is in memory only: %s", session.session_id, trouble)

    async def reward(self, session: Session, row: RewardRow) -> None:
        """Append a reward. Gone where the session is sealed, JournalTrouble where it would not be kept."""
        session.check_unsealed()
        try:
            if not await self._journal.reward(session.session_id, row):  # sealed since it was read
                session.state = "sealed"
                session.check_unsealed()
        except JournalError as error:
            raise JournalTrouble(f"the journal cannot be written, the reward is not kept: {error}") from error
        session.rewards.append(row)
        self._tell("rewarded", session)

    async def rotate_key(self, session: Session, scope: str, life_s: float | None) -> str:
        """A new key of this kind ("model" or "reward"); the old one stops working at once."""
        session.check_unsealed()
        if scope == "model":
            session.check_open()
        scopes = [key.scopes for key in await self._journal.keys(session.session_id) if key.scopes.split()[0] == scope]
        value = new_key(scope)
        new = _key(session.session_id, value, scopes[-1] if scopes else scope, life_s)
        try:
            for digest in await self._journal.rotate(new):
                self._keys.pop(digest, None)
        except JournalError as error:
            raise JournalTrouble(f"the journal cannot be written, the old key still works: {error}") from error
        if session.session_id in self._open:
            self._keys[new.digest] = new
            session.key_digests.append(new.digest)
        return value

    async def keys(self, session: Session) -> list[KeyRow]:
        """Every key this session had, in order; digests only."""
        return await self._journal.keys(session.session_id)

    async def by_id(self, session_id: str) -> Session:
        """NotFound where there never was one, Gone where its record was pruned."""
        held = self._open.get(session_id) or self._ended.get(session_id)
        if held:
            return held
        row = await self._journal.session(session_id)
        if row is None:
            raise NotFound(f"no session {session_id!r}")
        if row.pruned_at:
            raise Gone(
                f"session {session_id} was sealed at {row.sealed_at} and its record pruned from the gateway's journal at "
                f"{row.pruned_at}; an episode of a flow is in the lake",
                code="session_pruned",
            )
        if row.shredded_at:
            raise Gone(
                f"the record of session {session_id} was handed over and its key destroyed at {row.shredded_at}; "
                "an episode of a flow is in the lake",
                code="session_shredded",
            )
        try:
            return await self._load(row)
        except Unreadable as error:
            raise Gone(str(error), code="session_unreadable") from error

    async def by_key(self, key: str) -> tuple[Session, set[str]]:
        """The session of a key, and the key's scopes. Unauthorized, saying why, where the key opens nothing."""
        if not key:
            raise Unauthorized("no key: send Authorization: Bearer <key>")
        digest = hashed(key)
        row = self._keys.get(digest) or await self._journal.key(digest)
        if row is None or not hmac.compare_digest(row.digest, digest):
            raise Unauthorized("this key belongs to no session")
        if row.revoked_at:
            raise Unauthorized(f"this key was replaced at {row.revoked_at}; use the new one")
        if row.expires_at and datetime.fromisoformat(row.expires_at) <= now():
            raise Unauthorized(
                f"this key expired at {row.expires_at}; the operator can give a new one: POST /rl/rotate_key"
            )
        return await self.by_id(row.session_id), set(row.scopes.split())

    async def close(self) -> None:
        """Stop running calls; the sessions stay open in the journal."""
        for session in self.open:
            for flight in list(session.flights):
                flight.cancel(Status.INFRA_ERROR, "the gateway was stopped")
            await self.settle(session)

    async def _refresh(self, task_id: str, api_key: str) -> None:
        held = self._keys.get(hashed(api_key))
        active = self._open.get(held.session_id) if held else None
        if active is None:
            return
        if active.row.task_id != task_id:
            raise Conflict(f"this api_key is bound to the active session {active.session_id}; end that session first")
        await self.end(active, "refreshed: its key started a new session")

    async def _make_room(self) -> None:
        """Where the gateway is full, sessions of this worker that nobody uses are ended."""
        if not self._room.full:
            return
        stale = time.monotonic() - self._idle_s
        for session in [one for one in self.open if one.used_at < stale and not one.flights]:
            await self.end(session, f"idle for more than {self._idle_s:.0f} s")

    def _admit(self, session: Session, keys: list[KeyRow]) -> None:
        self._open[session.session_id] = session
        session.key_digests = [key.digest for key in keys]
        self._keys.update({key.digest: key for key in keys if key.revoked_at is None})

    def _forget(self, session: Session) -> None:
        """Out of memory; the journal has it."""
        self._journal.forget(session.session_id)
        self._open.pop(session.session_id, None)
        self._ended.pop(session.session_id, None)
        for digest in session.key_digests:
            held = self._keys.get(digest)
            if held and held.session_id == session.session_id:  # a refreshed key is a later session's by now
                del self._keys[digest]

    async def _load(self, row: SessionRow) -> Session:
        """A session out of the journal."""
        session = Session(row, row.state, row.reason, row.masked, budget_hit=row.budget_hit)
        session.calls += await self._journal.calls(row.session_id)
        session.rewards += await self._journal.rewards(row.session_id)
        for call in session.calls:
            if call.answer is None and row.state != "open":
                call.answer = Answer(status=Status.INFRA_ERROR, error="how this call ended was not recorded")
            if call.answered:
                session.remember(call)
        if [call.intent.call_index for call in session.calls] != list(range(len(session.calls))):
            session.masked = session.masked or "calls are missing from the journal"
        return session

    async def _close_dead(self, session: Session) -> None:
        """Calls that were running when the gateway died have failed."""
        for call in session.calls:
            if call.answer is None:
                call.answer = Answer(status=Status.INFRA_ERROR, error="the gateway died while this call ran")
                try:
                    await self._journal.answers(session.session_id, [(call.intent.call_id, call.answer)])
                except JournalError as error:
                    await self.mask(session, f"journal: {error}")

    async def _restore_masks(self) -> None:
        """Write down the masks that a journal which could not be written left beside it."""
        for row in await self._journal.left_masks():
            if not self._share.has(row.n):
                continue
            try:
                await self._journal.mask(row.session_id, row.masked or "the journal could not be written")
                self._journal.take_mask(row.n)
            except JournalError as error:
                log.error("the mask of session %s stays beside the journal: %s", row.session_id, error)


def _key(session_id: str, key: str, scopes: str, life_s: float | None) -> KeyRow:
    made = now()
    return KeyRow(
        digest=hashed(key),
        session_id=session_id,
        scopes=scopes,
        created_at=made.isoformat(),
        expires_at=(made + timedelta(seconds=life_s)).isoformat() if life_s is not None else None,
    )
