"""What is on disk of a conversation, while it can be read and when nobody may read it any more."""

import sqlite3

import pytest

from sandboxes.gateway.client import GatewayRefused
from sandboxes.gateway.sessions.vault import Vault

SECRET = "what the agent read in confidence"


def held(home):
    """Every byte of every file."""
    return b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())


def keys(home):
    return sorted(path.name for path in (home / "keys" / "sessions").iterdir())


async def talk(stack, session, text=SECRET):
    body = {"model": stack.model, "messages": [{"role": "user", "content": text}]}
    assert (await stack.post("/v1/chat/completions", session.api_key, body)).status_code == 200


async def talked(stack, text=SECRET):
    session = await stack.client.start_session("t")
    await talk(stack, session, text)
    await stack.client.set_reward(session, 1.0, reason=text)
    return session


async def test_nothing_that_was_said_is_on_disk_in_the_clear_while_a_session_is_open(start, tmp_path):
    async with start() as stack:
        session = await talked(stack)
        [row] = await stack.rows(session)
        ids = row.prompt_token_ids
        raw = held(tmp_path)
        assert session.session_id.encode() in raw  # it looked at the journal
        assert SECRET.encode() not in raw
        for form in (",".join(map(str, ids[:6])), ", ".join(map(str, ids[:6]))):
            assert form.encode() not in raw
        assert keys(tmp_path) == ["1"]


async def test_a_shredded_session_cannot_be_read_and_the_others_can(start, tmp_path):
    async with start() as stack:
        gone, kept = await talked(stack), await talked(stack)
        assert await stack.client.shred_sessions([gone.session_id]) == 1
        assert keys(tmp_path) == ["2"]
        for asked in (stack.rows(gone), stack.client.report(gone.session_id), stack.client.export(gone.session_id)):
            with pytest.raises(GatewayRefused, match=r"410.*key destroyed"):
                await asked
        answer = await stack.post("/rl/set_reward", gone.reward_key, {"reward": 1})
        assert (answer.status_code, answer.json()["error"]["code"]) == (410, "session_shredded")
        assert await stack.client.shred_sessions([gone.session_id]) == 1
        assert await stack.client.seal_sessions([gone.session_id]) == 1
        await stack.client.end_session(kept)
        assert [one["session_id"] for one in await stack.client.closed_sessions()] == [kept.session_id]
    async with start() as stack:
        assert len(await stack.rows(kept)) == 1
        with pytest.raises(GatewayRefused, match=r"410.*key destroyed"):
            await stack.rows(gone)
    assert SECRET.encode() not in held(tmp_path)


async def test_a_sealed_session_is_still_read_until_it_is_shredded(start, tmp_path):
    async with start() as stack:
        session = await talked(stack)
        await stack.client.seal_sessions([session.session_id])
        assert len(await stack.rows(session)) == 1
        assert await stack.client.shred_sessions([session.session_id]) == 1
        assert keys(tmp_path) == []


async def test_a_key_that_a_dying_process_left_is_destroyed_at_the_next_start(start, tmp_path):
    async with start() as stack:
        session, kept = await talked(stack), await talked(stack)
    with sqlite3.connect(tmp_path / "gateway" / "journal.db") as db:  # it died after it had written this
        db.execute("update sessions set state='sealed', shredded_at='x' where session_id=?", (session.session_id,))
    db.close()
    Vault(tmp_path / "keys" / "sessions").create(99)  # and one died before its session was written
    async with start() as stack:
        assert keys(tmp_path) == ["2"]
        assert len(await stack.rows(kept)) == 1


async def test_an_open_session_whose_key_is_lost_is_told_so_and_holds_up_nobody(start, tmp_path):
    async with start() as stack:
        lost, kept = await talked(stack), await talked(stack)
    (tmp_path / "keys" / "sessions" / "1").unlink()
    async with start() as stack:
        with pytest.raises(GatewayRefused, match=r"410.*key of session .* is missing"):
            await stack.rows(lost)
        await talk(stack, kept, "more")
        assert len(await stack.rows(kept)) == 2


def to_clear(home):
    """Rewrite a journal in the form it had before it was encrypted."""
    db = sqlite3.connect(home / "gateway" / "journal.db")
    vault = Vault(home / "keys" / "sessions")
    for n, session_id in db.execute("select n, session_id from sessions").fetchall():
        cipher = vault.open(n)
        for call_id, intent, answer in db.execute(
            "select call_id, intent, answer from calls join answers using (call_id) where session_id=?", (session_id,)
        ).fetchall():
            db.execute(
                "update calls set intent=? where call_id=?",
                (cipher.unlock(f"{call_id} intent", intent).decode(), call_id),
            )
            db.execute(
                "update answers set answer=? where call_id=?",
                (cipher.unlock(f"{call_id} answer", answer).decode(), call_id),
            )
        for at, reason in db.execute("select n, reason from rewards where session_id=?", (session_id,)).fetchall():
            db.execute("update rewards set reason=? where n=?", (cipher.unlock("reward", reason).decode(), at))
        vault.destroy(n)
    for column in ("shredded_at", "subject", "version"):
        db.execute(f"alter table sessions drop column {column}")
    db.execute("pragma user_version = 1")
    db.commit()
    db.close()


async def test_a_journal_in_the_clear_goes_on_and_nothing_is_left_of_it_once_it_is_shredded(start, tmp_path):
    async with start() as stack:
        session = await talked(stack)
        before = await stack.rows(session), await stack.client.rewards(session.session_id)
    to_clear(tmp_path)
    assert SECRET.encode() in held(tmp_path)
    async with start() as stack:
        assert (await stack.rows(session), await stack.client.rewards(session.session_id)) == before
        await talk(stack, session, "and this is new")
        assert len(await stack.rows(session)) == 2
        assert b"and this is new" not in held(tmp_path)
        await stack.client.shred_sessions([session.session_id])
        assert SECRET.encode() not in held(tmp_path)
