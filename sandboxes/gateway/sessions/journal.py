"""The journal: SQLite in WAL mode, one writer thread. Safe against `kill -9`; a power cut may lose the last moments.

Every write is small and away from the event loop, see `commits`. Conversations are in the columns `intent` and `answer`
only; they pass through `_written` and `_read` and nowhere else, the place for their encryption.
"""

import logging
import os
import sqlite3
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from lakehouse.records import now
from sandboxes.gateway.sessions.commits import Commits
from sandboxes.gateway.sessions.recorded import Answer, Intent, Recorded
from sandboxes.gateway.sessions.schema import KeyRow, RewardRow, SessionRow, insert, prepare

log = logging.getLogger(__name__)
Result = TypeVar("Result")
Shape = TypeVar("Shape", bound=BaseModel)
Row = TypeVar("Row", SessionRow, KeyRow, RewardRow)
JournalError = (sqlite3.Error, OSError)  # what a full disk, a lock or a damaged file raise


class Journal:
    """Async front of one SQLite file. Raises one of `JournalError`."""

    def __init__(self, path: Path) -> None:
        self.folder = path.parent
        self._masks = self.folder / "masks"
        self._masks.mkdir(parents=True, exist_ok=True, mode=0o700)
        # The file holds conversations: nobody but its owner may read it.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self.timed: Callable[[float], object] = lambda _seconds: (
            None
        )  # told how long each piece of work took, queueing included
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
        """Session and keys, both or neither."""

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
        """Sessions that have ended or are sealed, and not pruned, with how many rewards each has; in order of number."""
        names = [field.name for field in fields(SessionRow)]
        query = f"""
            select {", ".join(names)}, (select count(*) from rewards where rewards.session_id = sessions.session_id)
            from sessions where state in ('ended', 'sealed') and pruned_at is null and n > ? order by n limit ?
        """  # noqa: S608 - names are ours
        rows = await self._run(lambda db: db.execute(query, (after, limit)).fetchall())
        return [(SessionRow(**dict(zip(names, row[:-1], strict=True))), int(row[-1])) for row in rows]

    async def session(self, session_id: str) -> SessionRow | None:
        found = await self._select(SessionRow, "sessions", "session_id = ?", session_id)
        return found[0] if found else None

    async def key(self, digest: str) -> KeyRow | None:
        """The newest of this digest: a refreshed key belongs to the session it opened last."""
        found = await self._select(KeyRow, "keys", "digest = ? order by n desc limit 1", digest)
        return found[0] if found else None

    async def keys(self, session_id: str) -> list[KeyRow]:
        return await self._select(KeyRow, "keys", "session_id = ? order by n", session_id)

    async def rotate(self, old: list[KeyRow], new: KeyRow) -> None:
        """Revoke and add in one transaction."""

        def work(db: sqlite3.Connection) -> None:
            for key in old:
                values = (new.created_at, key.digest, key.session_id)
                db.execute("update keys set revoked_at=? where digest=? and session_id=?", values)
            insert(db, "keys", **asdict(new))

        await self._change(work)

    # ---- calls and rewards

    async def intent(self, session_id: str, intent: Intent) -> None:
        values = (session_id, intent.call_index, intent.call_id, _written(intent))
        await self._write("insert into calls values (?, ?, ?, ?)", *values)

    async def answer(self, call_id: str, answer: Answer) -> None:
        await self._write("insert into answers values (?, ?)", call_id, _written(answer))

    async def calls(self, session_id: str) -> list[Recorded]:
        """All calls of a session in order, also those without an answer."""
        query = "select intent, answer from calls left join answers using (call_id) where session_id = ? order by call_index"
        rows = await self._run(lambda db: db.execute(query, (session_id,)).fetchall())
        return [Recorded(_read(Intent, intent), _read(Answer, answer) if answer else None) for intent, answer in rows]

    async def reward(self, session_id: str, row: RewardRow) -> bool:
        """Append a reward; False where the session is sealed."""

        def work(db: sqlite3.Connection) -> bool:
            sealed = "select 1 from sessions where session_id = ? and state = 'sealed'"
            if db.execute(sealed, (session_id,)).fetchone():
                return False
            return insert(db, "rewards", session_id=session_id, **asdict(row)) == 1

        return await self._change(work)

    async def rewards(self, session_id: str) -> list[RewardRow]:
        """As they were given; a later row corrects an earlier one."""
        return await self._select(RewardRow, "rewards", "session_id = ? order by n", session_id)

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
            calls += await self._change(lambda db, session_id=row.session_id: _prune(db, session_id))  # type: ignore[misc]
        if old:
            await self._run(lambda db: db.execute("pragma wal_checkpoint(truncate)").fetchall())
        return len(old), calls


def _prune(db: sqlite3.Connection, session_id: str) -> int:
    db.execute("pragma secure_delete=on")  # overwritten, not only unlinked
    try:
        mine = "(select call_id from calls where session_id = ?)"
        db.execute(f"delete from answers where call_id in {mine}", (session_id,))  # noqa: S608 - ours
        calls = db.execute("delete from calls where session_id = ?", (session_id,)).rowcount
        db.execute("delete from rewards where session_id = ?", (session_id,))
        db.execute("update sessions set pruned_at = ? where session_id = ?", (now().isoformat(), session_id))
    finally:
        db.execute("pragma secure_delete=off")
    return calls


def _written(conversation: BaseModel) -> str:
    """A part of a conversation as the file holds it."""
    return conversation.model_dump_json()


def _read(shape: type[Shape], text: str) -> Shape:
    return shape.model_validate_json(text)
