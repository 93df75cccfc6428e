"""Loss is told, and beyond a bound it stops the gateway."""

import pytest

from sandboxes.gateway.client import GatewayUnavailable

USER = {"role": "user", "content": "hi"}


async def episode(stack, *failures):
    """A session of one call; returns its id."""
    session = await stack.client.start_session("t")
    stack.engine.failures.extend(failures)
    await stack.openai(session).chat.completions.create(model=stack.model, messages=[USER])
    await stack.client.end_session(session)
    return session


async def test_too_many_sessions_without_exact_tokens_stop_the_gateway_until_the_operator_resets_it(start):
    async with start(max_mask_fraction=0.1) as stack:  # of 20: the third
        for _ in range(2):
            await episode(stack, "nan")
        before = await episode(stack)
        going = await stack.client.start_session("t")
        await episode(stack, "nan")
        with pytest.raises(GatewayUnavailable, match=r"503.*3 of the last 4 sessions.*log-prob.*POST /rl/reset_stop"):
            await stack.client.start_session("t")
        refused = await stack.post("/rl/start_session", stack.gateway.operator_key, {"task_id": "t"})
        assert (refused.json()["error"]["code"], refused.headers["x-should-retry"]) == ("max_mask_fraction", "false")
        # What is there already goes on.
        await stack.openai(going).chat.completions.create(model=stack.model, messages=[USER])
        assert len(await stack.rows(before)) == 1
    async with start(max_mask_fraction=0.1) as stack:  # a restart is no reset
        with pytest.raises(GatewayUnavailable, match="3 of the last 4"):
            await stack.client.start_session("t")
        assert "3 of the last 4" in await stack.client.reset_stop()
        assert await stack.client.reset_stop() is None
        await episode(stack)


async def test_a_masked_session_counts_once(start):
    async with start(max_mask_fraction=0.1) as stack:
        session = await stack.client.start_session("t")
        held = await stack.gateway.sessions.by_id(session.session_id)
        for _ in range(5):
            await stack.gateway.sessions.mask(held, "a test")
        await stack.client.end_session(session)
        following = await stack.client.start_session("t")  # counted five times it would be refused
        assert (await stack.client.report(following.session_id))["state"] == "open"
        assert (await stack.client.report(session.session_id))["masked"] == "a test"


async def test_delivered_is_exact_answers_over_dispatched_calls_for_each_session_and_for_all(start):
    async with start() as stack:
        assert stack.gateway.sessions.delivered_fraction is None
        good = await episode(stack)
        bad = await episode(stack, "nan")
        assert (await stack.client.report(good.session_id))["delivered_fraction"] == 1.0
        assert (await stack.client.report(bad.session_id))["delivered_fraction"] == 0.0
        assert (await stack.client.health())["delivered_fraction"] == 0.5
