"""Budgets of a session: each refuses what is beyond it, with its name and both numbers."""

import asyncio

import pytest

from sandboxes.gateway.client import GatewayRefused

USER = {"role": "user", "content": "hi"}


async def ask(stack, session, **more):
    return await stack.post("/v1/chat/completions", session.api_key, {"model": stack.model, "messages": [USER], **more})


async def test_calls_are_counted_and_a_replayed_answer_is_free(start):
    async with start() as stack:
        session = await stack.client.start_session("t", limits={"max_calls": 2})
        for key in ("a", "a", "b", "b"):
            body = {"model": stack.model, "messages": [USER], "seed": ord(key)}
            answer = await stack.post("/v1/chat/completions", session.api_key, body, idempotency_key=key)
            assert answer.status_code == 200
        refused = await ask(stack, session, seed=3)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"], error["param"]) == (400, "budget_exhausted", "max_calls")
        assert "max_calls is 2" in error["message"] and "2 are used" in error["message"]
        assert refused.headers["x-should-retry"] == "false"
        assert len(await stack.rows(session)) == 2
        assert (await stack.client.report(session.session_id))["budget_hit"] == error["message"]
    async with start() as stack:  # the limits, and that one was met, are in the journal
        assert (await ask(stack, session, seed=3)).status_code == 400
        assert (await stack.client.report(session.session_id))["budget_hit"] == error["message"]


async def test_a_call_that_the_engine_failed_is_free(start):
    async with start() as stack:
        session = await stack.client.start_session("t", limits={"max_calls": 1})
        stack.engine.failures.append("500")
        assert [(await ask(stack, session)).status_code for _ in range(3)] == [503, 200, 400]


@pytest.mark.parametrize("token_routes", [True, False])
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_sampling_stops_where_the_budget_of_sampled_tokens_is_used_up(start, token_routes, name):
    async with start(["x" * 50], token_routes=token_routes) as stack:
        session = await stack.client.start_session("t", limits={"max_sampled_tokens": 30})
        first = (await ask(stack, session, **{name: 20})).json()
        second = (await ask(stack, session, **{name: 20}, seed=1)).json()
        assert [one["usage"]["completion_tokens"] for one in (first, second)] == [20, 10]
        assert second["choices"][0]["finish_reason"] == "length"
        refused = await ask(stack, session, seed=2)
        assert (refused.status_code, "max_sampled_tokens is 30; 30 are used" in refused.text) == (400, True)


async def test_choices_share_what_is_left(start):
    async with start(["x" * 50]) as stack:
        session = await stack.client.start_session("t", limits={"max_sampled_tokens": 30, "max_calls": 4})
        answer = (await ask(stack, session, n=3)).json()
        assert [choice["finish_reason"] for choice in answer["choices"]] == ["length"] * 3
        assert answer["usage"]["completion_tokens"] == 30
        refused = await ask(stack, session, n=2, seed=1)  # only one call is left
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "max_calls")
        assert "max_calls is 4; 3 are used and this request has 2 choices" in refused.text


async def test_choices_that_run_are_counted_before_they_are_dispatched(start):
    async with start(["x" * 20], token_delay_s=0.005) as stack:
        session = await stack.client.start_session("t", limits={"max_calls": 10})
        answers = await asyncio.gather(*(ask(stack, session, n=8, seed=seed) for seed in range(3)))
        assert sorted(answer.status_code for answer in answers) == [200, 400, 400]
        assert (await stack.client.report(session.session_id))["used"]["max_calls"] == 8


async def test_a_prompt_beyond_the_budget_of_prompt_tokens_is_refused_and_a_shorter_one_is_not(start):
    async with start() as stack:
        session = await stack.client.start_session("t", limits={"max_prompt_tokens": 100})
        long = {"role": "user", "content": "x" * 200}
        refused = await ask(stack, session, messages=[long])
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "max_prompt_tokens")
        assert "0 are used and this prompt has 2" in refused.text
        assert (await ask(stack, session)).status_code == 200


async def test_a_prompt_counts_once_for_each_of_its_choices(start):
    async with start() as stack:
        session = await stack.client.start_session("t", limits={"max_prompt_tokens": 150})
        long = {"role": "user", "content": "x" * 60}
        refused = await ask(stack, session, messages=[long], n=3)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "max_prompt_tokens")
        assert "3 times for as many choices" in refused.text
        assert (await ask(stack, session, messages=[long])).status_code == 200


async def test_calls_beyond_the_concurrency_are_told_to_wait(start):
    async with start(["x" * 30], token_delay_s=0.02) as stack:
        session = await stack.client.start_session("t", limits={"max_concurrency": 1})
        running = asyncio.create_task(ask(stack, session))
        await asyncio.sleep(0.3)
        refused = await ask(stack, session, seed=1)
        assert (refused.status_code, int(refused.headers["retry-after"]) > 0) == (429, True)
        assert "max_concurrency is 1" in refused.text
        assert (await running).status_code == 200
        assert (await ask(stack, session, seed=1)).status_code == 200
        # OpenAI's SDK waits by itself.
        sdk = stack.openai(session, max_retries=5)
        both = [sdk.chat.completions.create(model=stack.model, messages=[USER], seed=n) for n in (2, 3)]
        assert len(await asyncio.gather(*both)) == 2


async def test_calls_after_the_wall_time_are_refused(start):
    async with start() as stack:
        session = await stack.client.start_session("t", limits={"max_wall_s": 0.5})
        assert (await ask(stack, session)).status_code == 200
        await asyncio.sleep(0.6)
        refused = await ask(stack, session, seed=1)
        assert (refused.status_code, "max_wall_s is 0.5" in refused.text) == (400, True)


@pytest.mark.parametrize("limits", [{"max_calls": 0}, {"max_tokens": 5}, {"max_wall_s": -1}])
async def test_a_limit_that_makes_no_sense_is_named(start, limits):
    async with start() as stack:
        with pytest.raises(GatewayRefused, match=f"400.*limits.{next(iter(limits))}"):
            await stack.client.start_session("t", limits=limits)
