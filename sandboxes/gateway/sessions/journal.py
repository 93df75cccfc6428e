"""The journal: SQLite in WAL mode, one writer thread. Safe against `kill -9`; a power cut may lose the last moments.

Every write is small and away from the event loop, see `commits`. Conversations are in the columns `intent` and `answer`
only, and people's words in a reward's `reason`; these are encrypted with a key per session (`vault`), which is destroyed
once the episode has landed (`shred`). Rows that a journal of an earlier release holds in the clear are read as they are.
"""

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from lakehouse.records import now
from sandboxes.gateway.sessions.commits import Commits
from sandboxes.gateway.sessions.recorded import Answer, Intent, Recorded
from sandboxes.gateway.sessions.schema import KeyRow, RewardRow, SessionRow, insert, prepare
from sandboxes.gateway.sessions.vault import Cipher, Unreadable, Vault

log = logging.getLogger(__name__)
Result = TypeVar("Result")
Row = TypeVar("Row", SessionRow, KeyRow, RewardRow)
JournalError = (sqlite3.Error, OSError)  # what a full disk, a lock or a damaged file raise


class Journal:
    """Async front of one SQLite file. Raises one of `JournalError`."""

    def __init__(self, path: Path, keys: Path) -> None:
        """`keys`: the folder of the sessions' keys."""
        self.folder = path.parent
        self._masks = self.folder / "masks"
        self._masks.mkdir(parents=True, exist_ok=True, mode=0o700)
        # The file holds conversations: nobody but its owner may read it.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self.timed: Callable[[float], object] = lambda _seconds: (
            None
        )  # told how long each piece of work took, queueing included
        self._vault = Vault(keys)
        self._ciphers: dict[str, Cipher] = {}  # of sessions in memory
        self._commits = Commits(lambda: self._open(path))

    @staticmethod
    def _open(path: Path) -> sqlite3.Connection:
        db = sqlite3.connect(path, timeout=2.0, isolation_level=None)
        db.executescript("pragma journal_mode=wal; pragma synchronous=normal;")
        prepare(db)
        return db

    async def _run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Reading, or what does its own transactions."""
        return await self._commits.run(work)

    async def _change(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """All changes that `work` makes, or none."""
        began = time.monotonic()
        try:
            return await self._commits.write(work)
        finally:
            self.timed(time.monotonic() - began)

    async def _write(self, statement: str, *values: Any) -> None:
        """One change of one row."""

        def work(db: sqlite3.Connection) -> None:
            changed = db.execute(statement, values).rowcount
            if changed != 1:
                raise sqlite3.IntegrityError(f"{changed} rows changed instead of one: {statement.split(' where')[0]}")

        await self._change(work)

    async def _select(self, shape: type[Row], table: str, where: str, *values: str) -> list[Row]:
        names = [field.name for field in fields(shape)]
        query = f"select {', '.join(names)} from {table} where {where}"  # noqa: S608 - conditions are ours, values are bound
        return await self._run(
            lambda db: [shape(**dict(zip(names, row, strict=True))) for row in db.execute(query, values)]
        )

    def close(self) -> None:
        """Finish what was handed over, then close the file."""
        self._commits.close()

    # ---- sessions and their keys

    async def last_session_number(self) -> int:
        found = await self._run(lambda db: db.execute("select coalesce(max(n), 0) from sessions").fetchone())
        return int(found[0])

    async def start_session(self, row: SessionRow, keys: list[KeyRow]) -> None:
        """Session and keys, both or neither. The key of its record is there before the first of them."""
        self._ciphers[row.session_id] = await asyncio.to_thread(self._vault.create, row.n)

        def work(db: sqlite3.Connection) -> None:
            insert(db, "sessions", **asdict(row))
            for key in keys:
                insert(db, "keys", **asdict(key))

        await self._change(work)

    async def end_session(self, session_id: str, reason: str, masked: str | None) -> None:
        await self._write(
            "update sessions set state='ended', reason=?, masked=?, ended_at=? where session_id=?",
            reason,
            masked,
            now().isoformat(),
            session_id,
        )

    async def seal_session(self, session_id: str) -> None:
        await self._write(
            "update sessions set state='sealed', sealed_at=? where session_id=?", now().isoformat(), session_id
        )

    async def mask(self, session_id: str, reason: str) -> None:
        await self._write("update sessions set masked=? where session_id=?", reason, session_id)

    def leave_mask(self, n: int) -> None:
        """Where a mask cannot be written: an empty file, named by the session's number. A full disk takes those."""
        try:
            (self._masks / str(n)).touch(mode=0o600)
        except OSError as error:
            log.error("the mask of session number %d is in memory only: %s", n, error)

    async def left_masks(self) -> list[SessionRow]:
        """The sessions whose masks could not be written."""
        numbers = [path.name for path in self._masks.iterdir() if path.name.isdecimal()]
        marks = ", ".join("?" * len(numbers))
        return await self._select(SessionRow, "sessions", f"n in ({marks}) order by n", *numbers)

    def take_mask(self, n: int) -> None:
        """Written now."""
        (self._masks / str(n)).unlink(missing_ok=True)

    async def budget_hit(self, session_id: str, cause: str) -> None:
        await self._write("update sessions set budget_hit=? where session_id=?", cause, session_id)

    async def open_sessions(self) -> list[SessionRow]:
        return await self._select(SessionRow, "sessions", "state = 'open' order by n")

    async def closed_sessions(self, after: int, limit: int) -> list[tuple[SessionRow, int]]:
        """Sessions that have ended or are sealed, and can still be read, with how many rewards each has; in order of number."""
        names = [field.name for field in fields(SessionRow)]
        query = f"""
            select {", ".join(names)}, (select count(*) from rewards where rewards.session_id = sessions.session_id)
            from sessions
            where state in ('ended', 'sealed') and pruned_at is null and shredded_at is null and n > ?
            order by n limit ?
        """  # noqa: S608 - names are ours
        rows = await self._run(lambda db: db.execute(query, (after, limit)).fetchall())
        return [(SessionRow(**dict(zip(names, row[:-1], strict=True))), int(row[-1])) for row in rows]

    async def open_by_version(self) -> dict[int, int]:
        """How many open sessions keep to each weight version; those that any may answer are not counted."""
        query = "select version, count(*) from sessions where state = 'open' and version is not null group by version"
        return dict(await self._run(lambda db: db.execute(query).fetchall()))

    async def session(self, session_id: str) -> SessionRow | None:
        found = await self._select(SessionRow, "sessions", "session_id = ?", session_id)
        return found[0] if found else None

    async def key(self, digest: str) -> KeyRow | None:
        """The newest of this digest: a refreshed key belongs to the session it opened last."""
        found = await self._select(KeyRow, "keys", "digest = ? order by n desc limit 1", digest)
        return found[0] if found else None

    async def keys(self, session_id: str) -> list[KeyRow]:
        return await self._select(KeyRow, "keys", "session_id = ? order by n", session_id)

    async def rotate(self, new: KeyRow) -> list[str]:
        """Add a session's key and revoke those of its kind, in one transaction; the digests of those that were revoked."""
        kind = new.scopes.split()[0]

        def work(db: sqlite3.Connection) -> list[str]:
            valid = "select digest, scopes from keys where session_id=? and revoked_at is null"
            rows = db.execute(valid, (new.session_id,)).fetchall()
            old = [digest for digest, scopes in rows if scopes.split()[0] == kind]
            for digest in old:
                values = (new.created_at, digest, new.session_id)
                db.execute("update keys set revoked_at=? where digest=? and session_id=?", values)
            insert(db, "keys", **asdict(new))
            return old

        return await self._change(work)

    # ---- calls and rewards

    async def intents(self, session_id: str, intents: Sequence[Intent]) -> None:
        """Of one request's choices, all or none."""
        rows = [
            (
                session_id,
                one.call_index,
                one.call_id,
                await self._locked(session_id, f"{one.call_id} intent", one.model_dump_json()),
            )
            for one in intents
        ]
        await self._change(lambda db: db.executemany("insert into calls values (?, ?, ?, ?)", rows))

    async def answers(self, session_id: str, answers: Sequence[tuple[str, Answer]]) -> None:
        """Of one request's choices, by call id, all or none."""
        rows = [
            (call_id, await self._locked(session_id, f"{call_id} answer", answer.model_dump_json()))
            for call_id, answer in answers
        ]
        await self._change(lambda db: db.executemany("insert into answers values (?, ?)", rows))

    async def calls(self, session_id: str) -> list[Recorded]:
        """All calls of a session in order, also those without an answer. Unreadable where its key is gone."""
        query = (
            "select call_id, intent, answer from calls left join answers using (call_id) "
            "where session_id = ? order by call_index"
        )
        rows = await self._run(lambda db: db.execute(query, (session_id,)).fetchall())
        cipher = await self._cipher(session_id) if rows else None
        return [
            Recorded(
                Intent.model_validate_json(_unlocked(cipher, f"{call_id} intent", intent)),
                Answer.model_validate_json(_unlocked(cipher, f"{call_id} answer", answer)) if answer else None,
            )
            for call_id, intent, answer in rows
        ]

    async def reward(self, session_id: str, row: RewardRow) -> bool:
        """Append a reward; False where the session is sealed."""
        reason = await self._locked(session_id, "reward", row.reason)

        def work(db: sqlite3.Connection) -> bool:
            sealed = "select 1 from sessions where session_id = ? and state = 'sealed'"
            if db.execute(sealed, (session_id,)).fetchone():
                return False
            return insert(db, "rewards", session_id=session_id, **{**asdict(row), "reason": reason}) == 1

        return await self._change(work)

    async def rewards(self, session_id: str) -> list[RewardRow]:
        """As they were given; a later row corrects an earlier one."""
        rows = await self._select(RewardRow, "rewards", "session_id = ? order by n", session_id)
        cipher = await self._cipher(session_id) if rows else None
        return [replace(row, reason=_unlocked(cipher, "reward", row.reason)) for row in rows]

    # ---- the keys of records

    async def shred(self, session_id: str) -> None:
        """Make a session's record unreadable for good: its key is destroyed. May be called twice.

        Written down first: where the process dies before the key is gone, the next start destroys it.
        """
        row = await self.session(session_id)
        if row is None:
            return
        clear = await self._change(lambda db: _shred(db, session_id))
        if clear:
            await self._run(lambda db: db.execute("pragma wal_checkpoint(truncate)").fetchall())
        self.forget(session_id)
        await asyncio.to_thread(self._vault.destroy, row.n)

    async def sweep(self, mine: Callable[[int], bool]) -> int:
        """Destroy the keys that no readable session needs: those of a process that died half-way. How many."""
        found = [n for n in self._vault.numbers() if mine(n)]
        query = "select n from sessions where shredded_at is null and pruned_at is null"
        needed = {n for (n,) in await self._run(lambda db: db.execute(query).fetchall())}
        gone = [n for n in found if n not in needed]
        for n in gone:
            await asyncio.to_thread(self._vault.destroy, n)
        return len(gone)

    def forget(self, session_id: str) -> None:
        """The session is no longer in memory, nor is its key."""
        self._ciphers.pop(session_id, None)

    async def _locked(self, session_id: str, place: str, text: str) -> bytes:
        cipher = self._ciphers.get(session_id) or await self._cipher(session_id)
        return cipher.lock(place, text.encode())

    async def _cipher(self, session_id: str) -> Cipher:
        """Of an older journal's session, whose record so far is in the clear, a new one."""
        if held := self._ciphers.get(session_id):
            return held
        row = await self.session(session_id)
        if row is None or row.shredded_at or row.pruned_at:
            raise Unreadable(f"the record of session {session_id} cannot be read any more")
        cipher = await asyncio.to_thread(self._vault.open, row.n)
        if cipher is None and await self._run(lambda db: _has_locked(db, session_id)):
            raise Unreadable(
                f"the key of session {session_id} is missing from the home folder's keys/sessions: its record cannot be read"
            )
        if cipher is None:
            cipher = await asyncio.to_thread(self._vault.create, row.n)
        if row.state == "open":
            self._ciphers[session_id] = cipher
        return cipher

    # ---- the gateway as a whole

    async def prune(self, sealed_before: datetime) -> tuple[int, int]:
        """Delete calls and rewards of sessions sealed before then; how many sessions and calls.

        What is left of a session is its row and its keys' digests, so that whoever asks is told where the record went.
        """
        old = await self._select(
            SessionRow, "sessions", "sealed_at < ? and pruned_at is null", sealed_before.isoformat()
        )
        calls = 0
        for row in old:  # one transaction each, so that answers are not kept waiting
            await self.shred(row.session_id)
            calls += await self._change(lambda db, session_id=row.session_id: _prune(db, session_id))  # type: ignore[misc]
        if old:
            await self._run(lambda db: db.execute("pragma wal_checkpoint(truncate)").fetchall())
        return len(old), calls


def _prune(db: sqlite3.Connection, session_id: str) -> int:
    db.execute("pragma secure_delete=on")  # overwritten, not only unlinked
    try:
        calls = _delete(db, session_id)
        db.execute("update sessions set pruned_at = ? where session_id = ?", (now().isoformat(), session_id))
    finally:
        db.execute("pragma secure_delete=off")
    return calls


def _shred(db: sqlite3.Connection, session_id: str) -> bool:
    """Say so of the session; delete what an earlier release wrote in the clear. Whether there was any."""
    at = now().isoformat()
    db.execute(
        "update sessions set state='sealed', sealed_at=coalesce(sealed_at, ?), shredded_at=coalesce(shredded_at, ?) "
        "where session_id=?",
        (at, at, session_id),
    )
    clear = "select 1 from calls where session_id=? and typeof(intent)='text' limit 1"
    if not db.execute(clear, (session_id,)).fetchone():
        return False
    db.execute("pragma secure_delete=on")
    try:
        _delete(db, session_id)
    finally:
        db.execute("pragma secure_delete=off")
    return True


def _delete(db: sqlite3.Connection, session_id: str) -> int:
    """Calls and rewards of a session; how many calls."""
    mine = "(select call_id from calls where session_id = ?)"
    db.execute(f"delete from answers where call_id in {mine}", (session_id,))  # noqa: S608 - ours
    calls = db.execute("delete from calls where session_id = ?", (session_id,)).rowcount
    db.execute("delete from rewards where session_id = ?", (session_id,))
    return calls


def _has_locked(db: sqlite3.Connection, session_id: str) -> bool:
    query = "select 1 from calls where session_id=? and typeof(intent)='blob' limit 1"
    return db.execute(query, (session_id,)).fetchone() is not None


def _unlocked(cipher: Cipher | None, place: str, record: bytes | str) -> str:
    """A journal of an earlier release has text where there are bytes today."""
    if isinstance(record, str):
        return record
    assert cipher is not None  # there is one wherever there are rows
    return cipher.unlock(place, record).decode()
