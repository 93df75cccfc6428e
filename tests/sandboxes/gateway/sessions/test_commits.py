"""Writes that wait together are committed together, and nobody fails with another's work."""

import asyncio
import sqlite3
import threading
from contextlib import contextmanager

import pytest

from sandboxes.gateway.sessions.commits import Commits


@contextmanager
def commits(path):
    def connect():
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("create table if not exists t (n integer primary key)")
        return db

    one = Commits(connect)
    yield one
    one.close()


def add(n):
    return lambda db: db.execute("insert into t values (?)", (n,)).rowcount


def kept(path):
    with sqlite3.connect(path) as db:
        return [n for (n,) in db.execute("select n from t order by n")]


async def test_of_a_group_only_the_work_that_fails_is_undone(tmp_path):
    def half(db):
        db.execute("insert into t values (100)")
        raise sqlite3.IntegrityError("no more")

    with commits(tmp_path / "db") as one:
        told = await asyncio.gather(
            one.write(add(1)), one.write(add(2)), one.write(add(1)), one.write(half), one.write(add(3)),
            one.run(lambda db: db.execute("select count(*) from t").fetchone()[0]),
            return_exceptions=True,
        )  # fmt: skip
    assert told[0] == told[1] == told[4] == 1
    assert isinstance(told[2], sqlite3.IntegrityError)
    assert isinstance(told[3], sqlite3.IntegrityError)
    assert told[5] == 3  # it was asked after the writes
    assert kept(tmp_path / "db") == [1, 2, 3]


async def test_writes_that_wait_share_a_commit(tmp_path):
    with commits(tmp_path / "db") as one:
        statements = []
        await one.run(lambda db: db.set_trace_callback(statements.append))
        held = threading.Event()
        first = asyncio.create_task(one.run(lambda _: held.wait(10)))
        rest = [asyncio.create_task(one.write(add(n))) for n in range(20)]
        await asyncio.sleep(0)
        held.set()
        await asyncio.gather(first, *rest)
        assert statements.count("COMMIT") + statements.count("commit") == 1


async def test_a_writer_that_is_cancelled_takes_nothing_back(tmp_path):
    with commits(tmp_path / "db") as one:
        held = threading.Event()
        first = asyncio.create_task(one.run(lambda _: held.wait(10)))
        gone = asyncio.create_task(one.write(add(7)))
        await asyncio.sleep(0.01)
        gone.cancel()
        await asyncio.wait([gone])
        held.set()
        await first
        await one.write(add(8))
    assert gone.cancelled()
    assert kept(tmp_path / "db") == [7, 8]


async def test_closing_finishes_what_was_handed_over(tmp_path):
    with commits(tmp_path / "db") as one:
        held = threading.Event()
        tasks = [asyncio.create_task(one.run(lambda _: held.wait(10))), asyncio.create_task(one.write(add(1)))]
        await asyncio.sleep(0.01)
        held.set()
    assert kept(tmp_path / "db") == [1]
    for task in tasks:
        task.cancel()


async def test_a_commit_that_fails_is_told_to_its_writers(tmp_path):
    with commits(tmp_path / "db") as one:
        other = sqlite3.connect(tmp_path / "db", isolation_level=None)
        other.execute("begin immediate")
        await one.run(lambda db: db.execute("pragma busy_timeout=10"))
        for told in await asyncio.gather(one.write(add(1)), one.write(add(2)), return_exceptions=True):
            assert isinstance(told, sqlite3.OperationalError)
        other.execute("rollback")
        assert await one.write(add(1)) == 1
        other.close()
    assert kept(tmp_path / "db") == [1]
    with pytest.raises(RuntimeError):
        await one.write(add(2))
