"""Sessions that are erased: everything the journal has of them, also their rows and the digests of their keys.

It works on the file, whether or not a gateway runs on it: SQLite takes turns between processes.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sandboxes.gateway.sessions.vault import Vault

PATIENCE_S = 30.0
Mine = Callable[[str, str, str, str | None], bool]  # session id, task id, start as ISO 8601, subject


@dataclass(frozen=True)
class Kept:
    """A session of which the journal still has something."""

    n: int
    session_id: str
    task_id: str
    started_at: str  # ISO 8601


def sessions(journal: Path, mine: Mine) -> list[Kept]:
    """The sessions that `mine` tells. A journal that is not there has none.

    sqlite3.OperationalError where a gateway holds a lock for too long.
    """
    if not journal.exists():
        return []
    db = _opened(journal)
    try:
        return _sessions(db, mine)
    finally:
        db.close()


def erase_sessions(journal: Path, keys: Path, mine: Mine) -> int:
    """Delete the sessions that `mine` tells, overwriting them, and their keys in the folder `keys`; how many sessions.

    A journal that is not there has none.

    sqlite3.OperationalError where a gateway holds a lock for too long.
    """
    if not journal.exists():
        return 0
    db = _opened(journal)
    try:
        db.execute("pragma secure_delete = on")
        gone = _sessions(db, mine)
        for one in gone:  # one transaction each, so that answers are not kept waiting
            Vault(keys).destroy(one.n)
            _erase(db, one.session_id)
        if gone:
            db.execute("pragma wal_checkpoint(truncate)").fetchall()
        return len(gone)
    finally:
        db.close()


def _opened(journal: Path) -> sqlite3.Connection:
    return sqlite3.connect(journal, timeout=PATIENCE_S, isolation_level=None)


def _sessions(db: sqlite3.Connection, mine: Mine) -> list[Kept]:
    subject = "subject" if "subject" in _columns(db, "sessions") else "null"  # a journal of an older release
    rows = db.execute(f"select n, session_id, task_id, started_at, {subject} from sessions").fetchall()  # noqa: S608
    return [Kept(n, *about[:3]) for n, *about in rows if mine(*about)]


def _erase(db: sqlite3.Connection, session_id: str) -> None:
    """From every table that knows the session or one of its calls."""
    columns = {table: _columns(db, table) for table in _tables(db)}
    by_session = [table for table, names in columns.items() if "session_id" in names]
    by_call = [table for table, names in columns.items() if "call_id" in names and "session_id" not in names]
    db.execute("begin immediate")
    try:
        for table in by_call:
            calls = "(select call_id from calls where session_id = ?)"
            db.execute(f"delete from {table} where call_id in {calls}", (session_id,))  # noqa: S608 - tables of ours
        for table in by_session:
            db.execute(f"delete from {table} where session_id = ?", (session_id,))  # noqa: S608 - tables of ours
        db.execute("commit")
    except BaseException:  # an interrupt too: half an erasure is none
        db.execute("rollback")
        raise


def _tables(db: sqlite3.Connection) -> list[str]:
    return [name for (name,) in db.execute("select name from sqlite_master where type = 'table'")]


def _columns(db: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in db.execute(f"pragma table_info({table})")}
