"""What becomes of a session: open, ended, sealed, pruned."""

import asyncio

import pytest

from sandboxes.gateway.client import GatewayRefused
from sandboxes.gateway.sessions import sessions as sessions_module

USER = {"role": "user", "content": "hi"}


async def call(stack, session, **more):
    return await stack.openai(session).chat.completions.create(model=stack.model, messages=[USER], **more)


async def test_a_sealed_session_refuses_what_would_change_it_and_is_read_as_before(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        await call(stack, session)
        await stack.client.set_reward(session, 1.0)
        await stack.client.end_session(session)
        before = (await stack.rows(session), await stack.client.export(session.session_id))
        assert await stack.client.seal_sessions([session.session_id] * 2) == 2  # again changes nothing
        refused = [
            await stack.post("/v1/chat/completions", session.api_key, {"model": stack.model, "messages": [USER]}),
            await stack.post("/rl/set_reward", session.reward_key, {"reward": 0.0}),
            await stack.post("/rl/rotate_key", stack.gateway.operator_key, {"session_id": session.session_id}),
        ]
        for answer in refused:
            assert (answer.status_code, answer.json()["error"]["code"]) == (410, "session_sealed")
            assert session.session_id in answer.json()["error"]["message"]
            assert answer.headers["x-should-retry"] == "false"
        assert await stack.client.end_session(session) == 1  # it has ended: nothing changes
        assert (await stack.rows(session), await stack.client.export(session.session_id)) == before
        assert (await stack.client.report(session.session_id))["state"] == "sealed"
    async with start() as stack:
        assert (await stack.rows(session), await stack.client.export(session.session_id)) == before


async def test_sealing_an_open_session_ends_it_and_only_the_operator_may(start):
    async with start(["x" * 300], token_delay_s=0.02) as stack:
        session = await stack.client.start_session("t")
        wanted = {"session_id": session.session_id}
        assert (await stack.post("/rl/seal_session", session.reward_key, wanted)).status_code == 401
        running = asyncio.create_task(
            stack.post("/v1/chat/completions", session.api_key, {"model": stack.model, "messages": [USER]})
        )
        await asyncio.sleep(0.2)
        await stack.client.seal_sessions([session.session_id])
        assert (await running).status_code in (409, 410)
        assert [row.status for row in await stack.rows(session)] == ["cancelled"]


async def test_a_sealed_sessions_own_key_may_start_another(start):
    async with start() as stack:
        wanted = {"task_id": "a", "api_key": "my-own-key-1234"}
        first = (await stack.post("/rl/start_session", stack.gateway.operator_key, wanted)).json()
        await stack.client.seal_sessions([first["session_id"]])
        second = await stack.post("/rl/start_session", stack.gateway.operator_key, wanted)
        assert second.status_code == 200
        answer = await stack.post("/v1/chat/completions", "my-own-key-1234", {"model": stack.model, "messages": [USER]})
        assert answer.status_code == 200


async def test_a_reward_that_meets_the_sealing_is_refused_and_not_kept(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        await call(stack, session)
        await stack.client.end_session(session)
        held = await stack.gateway.sessions.by_id(session.session_id)
        await stack.gateway.journal.seal_session(session.session_id)  # by another hand, since `held` was read
        assert held.state == "ended"
        with pytest.raises(GatewayRefused, match=r"410.*sealed"):
            await stack.client.set_reward(session, 1.0)
        assert await stack.client.rewards(session.session_id) == []


async def test_pruning_deletes_what_was_sealed_long_enough_ago_and_says_so_to_who_asks(start, tmp_path):
    secret = "what the agent read in confidence"
    async with start() as stack:
        sealed, ended = [await stack.client.start_session("t") for _ in range(2)]
        for session in (sealed, ended):
            body = {"model": stack.model, "messages": [{"role": "user", "content": secret + session.session_id}]}
            assert (await stack.post("/v1/chat/completions", session.api_key, body)).status_code == 200
            await stack.client.set_reward(session, 1.0, reason=secret + session.session_id)
            await stack.client.end_session(session)
        await stack.client.seal_sessions([sealed.session_id])
        assert await stack.client.prune(sealed_for_s=3600) == (0, 0)
        assert await stack.client.prune(sealed_for_s=0) == (1, 1)
        assert await stack.client.prune(sealed_for_s=0) == (0, 0)
        for asked in (stack.client.export(sealed.session_id), stack.client.report(sealed.session_id)):
            with pytest.raises(GatewayRefused, match=r"410.*pruned"):
                await asked
        answer = await stack.post("/rl/set_reward", sealed.reward_key, {"reward": 1})
        assert (answer.status_code, answer.json()["error"]["code"]) == (410, "session_pruned")
        assert await stack.client.seal_sessions([sealed.session_id]) == 1
        assert len(await stack.rows(ended)) == 1
    held = b"".join(path.read_bytes() for path in (tmp_path / "gateway").glob("journal.db*"))
    assert secret.encode() not in held
    assert (secret + sealed.session_id).encode() not in held  # overwritten, not only unlinked


async def test_sessions_that_ended_leave_memory_and_are_read_from_the_journal(start, monkeypatch):
    monkeypatch.setattr(sessions_module, "KEPT_ENDED", 2)
    async with start() as stack:
        made = []
        for _ in range(6):
            made.append(await stack.client.start_session("t"))
            await call(stack, made[-1])
            await stack.client.end_session(made[-1])
        held = stack.gateway.sessions
        assert (len(held._open), len(held._ended), len(held._keys)) == (0, 2, 4)
        await stack.client.seal_sessions([session.session_id for session in made])
        assert (len(held._ended), len(held._keys)) == (0, 0)
        assert [len(await stack.rows(session)) for session in made] == [1] * 6


async def test_the_operator_sees_how_much_of_a_session_was_captured_and_its_tree(start):
    async with start(["first", "second", "third"]) as stack:
        session = await stack.client.start_session("t", limits={"max_calls": 9})
        first = (await call(stack, session)).choices[0].message.model_dump(exclude_none=True)
        for _ in range(2):
            body = {"model": stack.model, "messages": [USER, first, USER]}
            assert (await stack.post("/v1/chat/completions", session.api_key, body)).status_code == 200
        stack.engine.failures.append("nan")
        await call(stack, session, seed=7)
        told = await stack.client.report(session.session_id)
        rows = await stack.rows(session)
        assert told["calls"] == {"dispatched": 4, "running": 0, "answered": 4, "exact": 3}
        assert told["delivered_fraction"] == 0.75
        assert (told["limits"], told["used"]["max_calls"]) == ({"max_calls": 9}, 4)
        texts = {tuple(row.prompt_token_ids + row.completion_token_ids) for row in rows}
        distinct = len({text[:size] for text in texts for size in range(1, len(text) + 1)})
        total = sum(len(row.prompt_token_ids) + len(row.completion_token_ids) for row in rows)
        assert told["tree"]["forks"] == {"root": 1, "retry": 2}
        assert (told["tree"]["tokens"], told["tree"]["distinct_tokens"]) == (total, distinct)
        assert told["tree"]["duplication_ratio"] == pytest.approx(total / distinct)
        assert [key["scopes"] for key in told["keys"]] == [["model"], ["reward"]]
