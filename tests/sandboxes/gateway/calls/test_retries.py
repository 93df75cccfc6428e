"""The same call again is answered from the journal; engine trouble in between is not."""

import asyncio
import re

import openai
import pytest

from sandboxes.gateway.engines.upstream import Upstream

USER = {"role": "user", "content": "hi"}


def body(stack, **more):
    return {"model": stack.model, "messages": [USER], **more}


async def test_an_sdk_retry_of_an_answered_call_gets_the_recorded_answer(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        first = await stack.post("/v1/chat/completions", session.api_key, body(stack))
        again = await stack.post("/v1/chat/completions", session.api_key, body(stack), x_stainless_retry_count="1")
        assert again.json() == first.json()
        assert stack.engine.generated == len(await stack.rows(session)) == 1


async def test_the_same_body_without_the_retry_header_is_a_new_call(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        for _ in range(2):
            await stack.post("/v1/chat/completions", session.api_key, body(stack), x_stainless_retry_count="0")
        assert stack.engine.generated == len(await stack.rows(session)) == 2


async def test_a_retried_stream_is_streamed_again_out_of_the_journal(start, tools, searching):
    async with start([searching]) as stack:
        session = await stack.client.start_session("t")
        wanted = body(stack, tools=tools, stream=True)
        async with stack.http.stream(
            "POST", "/v1/chat/completions", json=wanted, headers={"Authorization": f"Bearer {session.api_key}"}
        ) as first:
            await first.aread()
        again = await stack.post("/v1/chat/completions", session.api_key, wanted, x_stainless_retry_count="2")
        assert again.text.endswith("data: [DONE]\n\n")
        assert "the é cake" in again.text
        assert again.text.split('"id":"')[1][:30] == first.text.split('"id":"')[1][:30]
        assert stack.engine.generated == 1


async def test_an_idempotency_key_replays_and_refuses_another_body(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        first = await stack.post("/v1/chat/completions", session.api_key, body(stack), Idempotency_Key="k1")
        again = await stack.post("/v1/chat/completions", session.api_key, body(stack), Idempotency_Key="k1")
        assert again.json() == first.json()
        other = await stack.post("/v1/chat/completions", session.api_key, body(stack, seed=1), Idempotency_Key="k1")
        assert (other.status_code, stack.engine.generated) == (400, 1)


async def test_a_retry_while_the_first_try_still_runs_waits_for_its_answer(start):
    async with start(token_delay_s=0.02) as stack:
        session = await stack.client.start_session("t")
        first = asyncio.create_task(stack.post("/v1/chat/completions", session.api_key, body(stack)))
        await asyncio.sleep(0.1)
        again = await stack.post("/v1/chat/completions", session.api_key, body(stack), x_stainless_retry_count="1")
        assert again.json() == (await first).json()
        assert stack.engine.generated == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_engine_trouble_is_a_503_that_the_sdk_retries(start, stream):
    async with start() as stack:
        session = await stack.client.start_session("t")
        stack.engine.failures.append("500")
        answer = await stack.openai(session, max_retries=2).chat.completions.create(**body(stack), stream=stream)
        if stream:
            assert [chunk async for chunk in answer]
        failed, answered = await stack.rows(session)
        assert (failed.status, failed.token_status, failed.completion_token_ids) == ("infra_error", "missing", [])
        assert (answered.status, answered.segment, answered.fork_reason) == ("ok", 0, "root")


async def test_an_engine_that_hangs_is_a_503_after_the_deadline(start):
    async with start(call_deadline_s=0.5) as stack:
        session = await stack.client.start_session("t")
        stack.engine.failures.append("hang")
        with pytest.raises(openai.InternalServerError, match="no answer within") as failure:
            await stack.openai(session).chat.completions.create(**body(stack))
        assert failure.value.status_code == 503
        [row] = await stack.rows(session)
        assert row.status == "infra_error"


async def test_a_stream_that_breaks_ends_with_an_error_event_and_its_tokens_are_not_exact(start):
    async with start(["a long answer that breaks"], token_delay_s=0.002) as stack:
        session = await stack.client.start_session("t")
        stack.engine.failures.append("broken")
        stream = await stack.openai(session).chat.completions.create(**body(stack), stream=True)
        with pytest.raises(openai.APIError, match="scripted break"):
            [chunk async for chunk in stream]
        [row] = await stack.rows(session)
        assert (row.status, row.token_status) == ("infra_error", "missing")


async def test_an_engine_that_is_gone_is_a_503(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        engine = stack.gateway.engines.members[0].engine
        engine._text = Upstream("http://127.0.0.1:9", engine.guard, deadline_s=5, connections=1)
        with pytest.raises(openai.InternalServerError, match="does not answer"):
            await stack.openai(session).chat.completions.create(**body(stack))


@pytest.mark.parametrize(("token_routes", "raw"), [(True, False), (False, False), (True, True)])
async def test_a_prompt_that_is_too_long_is_a_400_with_both_lengths_that_is_not_retried(start, token_routes, raw):
    async with start(max_model_len=200, token_routes=token_routes) as stack:
        session = await stack.client.start_session("t")
        sdk = stack.openai(session, max_retries=2)
        with pytest.raises(openai.BadRequestError) as failure:
            if raw:
                await sdk.completions.create(model=stack.model, prompt="x" * 500)
            else:
                await sdk.chat.completions.create(model=stack.model, messages=[{"role": "user", "content": "x" * 500}])
        assert failure.value.code == "context_length_exceeded"
        limit, length = map(int, re.findall(r"\d+", failure.value.body["message"]))
        assert (limit, 500 <= length < 600) == (200, True)


async def test_a_prompt_too_long_to_be_tokenised_is_told_in_characters(start):
    async with start(max_model_len=200) as stack:
        session = await stack.client.start_session("t")
        with pytest.raises(openai.BadRequestError, match=r"length is 200 tokens.*3\d{3} characters") as failure:
            await stack.openai(session).chat.completions.create(
                model=stack.model, messages=[{"role": "user", "content": "x" * 3000}]
            )
        assert failure.value.code == "context_length_exceeded"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_away_aborts_generation_and_the_call_is_recorded_as_cancelled(start, stream):
    async with start(["x" * 200], token_delay_s=0.02) as stack:
        session = await stack.client.start_session("t")
        client = stack.openai(session).with_options(timeout=0.4)
        with pytest.raises((openai.APITimeoutError, asyncio.TimeoutError)):
            async with asyncio.timeout(0.5):
                answer = await client.chat.completions.create(**body(stack), stream=stream)
                [chunk async for chunk in answer]
        await asyncio.sleep(0.3)
        await stack.client.end_session(session)
        [row] = await stack.rows(session)
        assert (row.status, row.token_status) == ("cancelled", "missing")
        assert stack.engine.aborted == 1


async def test_more_calls_than_allowed_are_asked_to_come_back(start):
    async with start(max_calls=1, token_delay_s=0.05) as stack:
        session = await stack.client.start_session("t")
        first = asyncio.create_task(stack.post("/v1/chat/completions", session.api_key, body(stack)))
        await asyncio.sleep(0.1)
        second = await stack.post("/v1/chat/completions", session.api_key, body(stack, seed=1))
        assert (second.status_code, second.headers["retry-after"]) == (429, "1")
        assert (await first).status_code == 200
