"""The file: what an older one becomes, and what happens where it fails."""

import sqlite3

import pytest

from sandboxes.gateway.sessions.journal import Journal
from sandboxes.gateway.sessions.keys import hashed

OLD = """
create table sessions (
  n integer primary key, session_id text unique not null, task_id text not null, mode text not null,
  model_key text not null, reward_key text not null, state text not null, reason text, masked text,
  engine_version text not null, template_digest text not null, started_at text not null, ended_at text
);
create index sessions_model_key on sessions (model_key);
create index sessions_reward_key on sessions (reward_key);
create table calls (
  session_id text not null, call_index integer not null, call_id text unique not null, intent text not null,
  answer text,
  primary key (session_id, call_index)
);
create table rewards (
  n integer primary key, session_id text not null, call_id text not null, reward real not null, given_at text not null
);
"""
USER = {"role": "user", "content": "hi"}


def to_old(path):
    """Rewrite a journal in the form it had before sessions had budgets and keys a table of their own."""
    new = sqlite3.connect(path)
    old = sqlite3.connect(path.with_name("old.db"))
    old.executescript(OLD)
    for row in new.execute("select n, session_id, task_id, mode, state, reason, masked, engine_version, template_digest,"
                           " started_at, ended_at from sessions").fetchall():  # fmt: skip
        digests = [
            found for (found,) in new.execute("select digest from keys where session_id=? order by n", (row[1],))
        ]
        old.execute(f"insert into sessions values ({', '.join('?' * 13)})", (*row[:4], *digests, *row[4:]))
    old.executemany(
        "insert into calls values (?, ?, ?, ?, ?)",
        new.execute(
            "select session_id, call_index, call_id, intent, answer from calls left join answers using (call_id)"
        ),
    )
    columns = "select session_id, call_id, reward, given_at from rewards"
    old.executemany("insert into rewards values (null, ?, ?, ?, ?)", new.execute(columns))
    old.commit()
    old.close()
    new.close()
    for left in path.parent.glob("journal.db*"):
        left.unlink()
    path.with_name("old.db").rename(path)


async def test_a_journal_of_an_older_version_is_taken_up_with_everything_in_it(start, tmp_path):
    async with start() as stack:
        session = await stack.client.start_session("t")
        chat = {"model": stack.model, "messages": [USER]}
        assert (await stack.post("/v1/chat/completions", session.api_key, chat)).status_code == 200
        await stack.client.set_reward(session, 0.75)
        before = (await stack.rows(session), await stack.client.export(session.session_id))
    to_old(tmp_path / "gateway" / "journal.db")
    async with start() as stack:
        assert (await stack.rows(session), await stack.client.export(session.session_id)) == before
        assert (await stack.post("/v1/chat/completions", session.api_key, chat)).status_code == 200
        assert (await stack.client.report(session.session_id))["limits"] == {}


def test_a_journal_of_a_newer_version_is_refused(tmp_path):
    with sqlite3.connect(tmp_path / "journal.db") as db:
        db.execute("pragma user_version = 99")
    with pytest.raises(sqlite3.DatabaseError, match="newer Lakeloop"):
        Journal(tmp_path / "journal.db", tmp_path / "keys")


async def test_a_reward_that_cannot_be_kept_is_a_503_worth_another_try(start, tmp_path):
    async with start() as stack:
        session = await stack.client.start_session("t")
        with sqlite3.connect(tmp_path / "gateway" / "journal.db") as other:
            other.execute("alter table rewards rename to away")
        given = {"reward": 1, "scope": "episode"}
        answer = await stack.post("/rl/set_reward", session.reward_key, given)
        assert (answer.status_code, answer.headers["x-should-retry"]) == (503, "true")
        with sqlite3.connect(tmp_path / "gateway" / "journal.db") as other:
            other.execute("alter table away rename to rewards")
        assert (await stack.post("/rl/set_reward", session.reward_key, given)).status_code == 200


async def test_the_journal_holds_digests_of_keys_and_the_newest_of_equal_keys_counts(start):
    async with start() as stack:
        wanted = {"task_id": "a", "api_key": "my-own-key-1234"}
        for _ in range(2):
            answer = await stack.post("/rl/start_session", stack.gateway.operator_key, wanted)
        row = await stack.gateway.journal.key(hashed("my-own-key-1234"))
        assert row.session_id == answer.json()["session_id"] == "a-2"
