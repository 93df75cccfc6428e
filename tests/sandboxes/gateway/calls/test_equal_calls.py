"""Calls that are equal on purpose, such as samples of one prompt, stay calls of their own, whatever fails in between."""

import asyncio
from collections import deque

import pytest

USER = {"role": "user", "content": "hi"}


def body(stack, **more):
    return {"model": stack.model, "messages": [USER], **more}


def counted():
    """Replies of which no two are equal."""
    numbers = iter(range(1000))
    return lambda _: f"sample {next(numbers)}"


def said(answer):
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]["content"]


async def test_the_retry_of_a_sample_that_failed_is_no_copy_of_the_sample_before_it(start):
    async with start(counted()) as stack:
        session = await stack.client.start_session("t")
        first = await stack.openai(session).chat.completions.create(**body(stack))
        stack.engine.failures.append("500")
        second = await stack.openai(session, max_retries=1).chat.completions.create(**body(stack))
        assert first.id != second.id
        assert [row.status for row in await stack.rows(session)] == ["ok", "infra_error", "ok"]


async def test_samples_that_were_sent_away_for_want_of_room_are_not_given_the_answers_of_the_others(start):
    async with start(counted(), token_delay_s=0.02) as stack:
        session = await stack.client.start_session("t", limits={"max_concurrency": 2})
        client = stack.openai(session, max_retries=8)
        answers = await asyncio.gather(*(client.chat.completions.create(**body(stack)) for _ in range(5)))
        assert len({answer.id for answer in answers}) == len(await stack.rows(session)) == 5


async def test_the_retry_of_a_sample_whose_client_gave_up_waiting_is_a_new_call(start):
    async with start(counted(), token_delay_s=0.03) as stack:
        session = await stack.client.start_session("t")
        one = said(await stack.post("/v1/chat/completions", session.api_key, body(stack)))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await stack.post("/v1/chat/completions", session.api_key, body(stack))
        async with asyncio.timeout(5):
            while not stack.engine.aborted:  # noqa: ASYNC110 - the engine's task counts
                await asyncio.sleep(0.01)
        other = said(
            await stack.post("/v1/chat/completions", session.api_key, body(stack), x_stainless_retry_count="1")
        )
        assert other != one


async def test_the_retry_of_a_sample_that_a_restart_cut_off_is_a_new_call(start):
    async with start(counted()) as stack:
        session = await stack.client.start_session("t")
        one = said(await stack.post("/v1/chat/completions", session.api_key, body(stack)))
        stack.engine.failures = deque(["hang"])
        cut = asyncio.create_task(stack.post("/v1/chat/completions", session.api_key, body(stack)))
        async with asyncio.timeout(5):
            while len(stack.engine.asked) < 2:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
    await asyncio.gather(cut, return_exceptions=True)
    async with start(lambda _: "after the restart") as stack:
        again = await stack.post("/v1/chat/completions", session.api_key, body(stack), x_stainless_retry_count="1")
        assert said(again) == "after the restart" != one


async def test_a_retry_of_what_never_arrived_runs_and_its_retry_is_its_answer_again(start):
    async with start(counted()) as stack:
        session = await stack.client.start_session("t")
        first = await stack.post("/v1/chat/completions", session.api_key, body(stack), x_stainless_retry_count="1")
        again = await stack.post("/v1/chat/completions", session.api_key, body(stack), x_stainless_retry_count="2")
        assert said(first) == said(again)
        assert len(await stack.rows(session)) == 1


async def test_where_two_equal_calls_were_answered_a_retry_gets_the_newer_answer(start):
    async with start(counted()) as stack:
        session = await stack.client.start_session("t")
        for _ in range(2):
            newest = said(await stack.post("/v1/chat/completions", session.api_key, body(stack)))
        again = await stack.post("/v1/chat/completions", session.api_key, body(stack), x_stainless_retry_count="1")
        assert said(again) == newest
        assert len(await stack.rows(session)) == 2


async def test_with_an_idempotency_key_a_retry_is_of_the_call_with_that_key_alone(start):
    async with start(counted()) as stack:
        session = await stack.client.start_session("t")

        async def ask(key, count):
            headers = {"Idempotency_Key": key} if key else {}
            told = await stack.post(
                "/v1/chat/completions", session.api_key, body(stack), x_stainless_retry_count=count, **headers
            )
            return said(told)

        one = await ask("k1", "0")
        two = await ask("k2", "1")  # its first try never arrived
        three = await ask(None, "1")  # nor did this one's, which has no key
        assert len({one, two, three}) == 3
        assert [await ask("k1", "1"), await ask("k2", "0"), await ask(None, "2")] == [one, two, three]
