"""The journal: SQLite in WAL mode, one writer thread. Safe against `kill -9`; a power cut may lose the last moments.

Every write is one small transaction (about 50 microseconds) away from the event loop.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from lakehouse.records import now
from sandboxes.gateway.recorded import Answer, Intent, Recorded

Result = TypeVar("Result")
JournalError = (sqlite3.Error, OSError)  # what a full disk, a lock or a damaged file raise

SCHEMA = """
create table if not exists sessions (
  n integer primary key, session_id text unique not null, task_id text not null, mode text not null,
  model_key text not null, reward_key text not null, state text not null, reason text, masked text,
  engine_version text not null, template_digest text not null, started_at text not null, ended_at text
);
create index if not exists sessions_model_key on sessions (model_key);
create index if not exists sessions_reward_key on sessions (reward_key);
create table if not exists calls (
  session_id text not null, call_index integer not null, call_id text unique not null, intent text not null,
  answer text,
  primary key (session_id, call_index)
);
create table if not exists rewards (
  n integer primary key, session_id text not null, call_id text not null, reward real not null, given_at text not null
);
"""


@dataclass(frozen=True)
class SessionRow:
    """A session as the journal knows it. Keys are digests."""

    n: int
    session_id: str
    task_id: str
    mode: str
    model_key: str
    reward_key: str
    state: str
    reason: str | None
    masked: str | None
    engine_version: str
    template_digest: str


COLUMNS = ", ".join(SessionRow.__dataclass_fields__)


class Journal:
    """Async front of one SQLite file. Raises one of `JournalError`."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # The file holds conversations: nobody but its owner may read it.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self._db = self._thread.submit(self._open, path).result()

    @staticmethod
    def _open(path: Path) -> sqlite3.Connection:
        db = sqlite3.connect(path, timeout=2.0, isolation_level=None)
        db.executescript("pragma journal_mode=wal; pragma synchronous=normal;" + SCHEMA)
        return db

    async def _run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        # Shielded: a call that is cancelled meanwhile must not take back what was handed over.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, work, self._db))

    async def _write(self, statement: str, *values: Any) -> None:
        changed = await self._run(lambda db: db.execute(statement, values).rowcount)
        if changed != 1:
            raise sqlite3.IntegrityError(f"{changed} rows changed instead of one: {statement.split(' where')[0]}")

    def close(self) -> None:
        """Finish what was handed over, then close the file."""
        self._thread.submit(self._db.close).result()
        self._thread.shutdown()

    async def last_session_number(self) -> int:
        found = await self._run(lambda db: db.execute("select coalesce(max(n), 0) from sessions").fetchone())
        return int(found[0])

    async def start_session(self, row: SessionRow) -> None:
        fields = [getattr(row, name) for name in SessionRow.__dataclass_fields__]
        marks = ", ".join("?" * (len(fields) + 1))
        statement = f"insert into sessions ({COLUMNS}, started_at) values ({marks})"  # noqa: S608 - names are ours
        await self._write(statement, *fields, now().isoformat())

    async def end_session(self, session_id: str, reason: str) -> None:
        await self._write(
            "update sessions set state='ended', reason=?, ended_at=? where session_id=?",
            reason,
            now().isoformat(),
            session_id,
        )

    async def mask(self, session_id: str, reason: str) -> None:
        await self._write("update sessions set masked=? where session_id=?", reason, session_id)

    async def intent(self, session_id: str, intent: Intent) -> None:
        text = intent.model_dump_json()
        await self._write(
            "insert into calls values (?, ?, ?, ?, null)", session_id, intent.call_index, intent.call_id, text
        )

    async def answer(self, call_id: str, answer: Answer) -> None:
        await self._write(
            "update calls set answer=? where call_id=? and answer is null", answer.model_dump_json(), call_id
        )

    async def reward(self, session_id: str, call_id: str, reward: float) -> None:
        await self._write(
            "insert into rewards (session_id, call_id, reward, given_at) values (?, ?, ?, ?)",
            session_id,
            call_id,
            reward,
            now().isoformat(),
        )

    async def open_sessions(self) -> list[SessionRow]:
        return await self._sessions("state = 'open'")

    async def session(self, session_id: str) -> SessionRow | None:
        found = await self._sessions("session_id = ?", session_id)
        return found[0] if found else None

    async def session_by_key(self, key_digest: str) -> SessionRow | None:
        """The newest session of a key: a refreshed key belongs to the session it opened last."""
        found = await self._sessions("model_key = ? or reward_key = ? order by n desc limit 1", key_digest, key_digest)
        return found[0] if found else None

    async def _sessions(self, where: str, *values: str) -> list[SessionRow]:
        query = f"select {COLUMNS} from sessions where {where}"  # noqa: S608 - conditions are ours, values are bound
        return await self._run(lambda db: [SessionRow(*row) for row in db.execute(query, values)])

    async def calls(self, session_id: str) -> list[Recorded]:
        """All calls of a session in order, also those without an answer."""
        query = "select intent, answer from calls where session_id = ? order by call_index"
        rows = await self._run(lambda db: db.execute(query, (session_id,)).fetchall())
        return [
            Recorded(Intent.model_validate_json(intent), Answer.model_validate_json(answer) if answer else None)
            for intent, answer in rows
        ]

    async def rewards(self, session_id: str) -> list[tuple[str, float]]:
        """(call id, reward) as they were given; a later row corrects an earlier one."""
        query = "select call_id, reward from rewards where session_id = ? order by n"
        return await self._run(lambda db: db.execute(query, (session_id,)).fetchall())
