"""Clients that race with themselves or leave at a bad moment, engines that answer with what is no answer."""

import asyncio
import json

import pytest

USER = {"role": "user", "content": "hi"}
CHAT = "/v1/chat/completions"


def body(stack, **more):
    return {"model": stack.model, "messages": [USER], **more}


@pytest.mark.parametrize(
    ("header", "stream"),
    [({"Idempotency_Key": "k"}, False), ({"x_stainless_retry_count": "1"}, True)],
    ids=["key", "retry"],
)
async def test_a_repetition_that_comes_before_the_first_try_is_dispatched_waits_for_it_too(start, header, stream):
    async with start() as stack:
        session = await stack.client.start_session("t")
        wanted = body(stack, stream=stream)
        answers = await asyncio.gather(*[stack.post(CHAT, session.api_key, wanted, **header) for _ in range(8)])
        assert {answer.status_code for answer in answers} == {200}
        assert stack.engine.generated == len(await stack.rows(session)) == 1
        other = stack.post(CHAT, session.api_key, body(stack, seed=1), Idempotency_Key="other")
        same = stack.post(CHAT, session.api_key, body(stack, seed=2), Idempotency_Key="other")
        assert sorted(answer.status_code for answer in await asyncio.gather(other, same)) == [200, 400]


async def test_a_repetition_waits_for_its_own_first_try_and_for_no_other_call(start):
    async with start(lambda prompt: "x" * 400 if "long" in prompt else "short", token_delay_s=0.01) as stack:
        session = await stack.client.start_session("t")
        long = {"model": stack.model, "messages": [{"role": "user", "content": "long"}]}
        other = asyncio.create_task(stack.post(CHAT, session.api_key, long))
        first = asyncio.create_task(stack.post(CHAT, session.api_key, body(stack)))
        await asyncio.sleep(0.03)
        again = await stack.post(CHAT, session.api_key, body(stack), x_stainless_retry_count="1")
        assert again.json() == (await first).json()
        assert not other.done()
        other.cancel()


async def test_of_repetitions_whose_first_try_failed_one_is_the_next_try(start):
    async with start(token_delay_s=0.002) as stack:
        session = await stack.client.start_session("t")
        stack.engine.failures.append("500")
        wanted = [stack.post(CHAT, session.api_key, body(stack), Idempotency_Key="k") for _ in range(5)]
        answers = await asyncio.gather(*wanted)
        assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 200, 503]
        assert [row.status for row in await stack.rows(session)] == ["infra_error", "ok"]


@pytest.mark.parametrize("generated", [0, 3], ids=["as it is dispatched", "as it is recorded"])
async def test_a_client_that_leaves_while_the_journal_writes_leaves_no_choice_without_its_end(
    start, monkeypatch, generated
):
    async with start() as stack:
        session = await stack.client.start_session("t")
        [held] = stack.gateway.sessions.open
        commits = stack.gateway.journal._commits
        write = commits.write

        async def leaving(work):
            if stack.engine.generated == generated:
                for flight in held.flights:
                    flight.cancel()
            return await write(work)

        with monkeypatch.context() as patched:
            patched.setattr(commits, "write", leaving)
            answer = await stack.post(CHAT, session.api_key, body(stack, n=3))
        assert answer.status_code == 409
        assert (await stack.client.report(session.session_id))["calls"]["running"] == 0
    async with start() as stack:
        assert (await stack.post(CHAT, session.api_key, body(stack))).status_code == 200
        report = await stack.client.report(session.session_id)
        assert (report["masked"], report["calls"]["dispatched"]) == (None, 4)
        expected = ["cancelled" if generated == 0 else "ok"] * 3
        assert [row.status for row in await stack.rows(session)] == [*expected, "ok"]


NO_ANSWERS = [
    {"token_ids": ["a", "b"]},
    {"token_ids": "ab"},
    {"token_ids": [1.5]},
    {"token_ids": [-1]},
    {"token_ids": [2**40]},
    {"token_ids": [2**70]},
    {"logprobs": {"content": [{"logprob": "low"}]}},
    {"logprobs": ["none"]},
    {"weight_versions": [{"version": "1", "start": "0", "end": None}]},
    {"weight_versions": [7]},
    {"finish_reason": 7},
]


@pytest.mark.parametrize(
    ("stream", "token_routes"), [(False, True), (True, True), (True, False)], ids=["whole", "stream", "chat stream"]
)
async def test_what_is_no_answer_fails_one_call_and_leaves_the_session_as_it_was(
    start, monkeypatch, stream, token_routes
):
    async with start(token_routes=token_routes) as stack:
        engine, whole = stack.engine, stack.engine._choice
        for broken in NO_ANSWERS:
            session = await stack.client.start_session("t")
            with monkeypatch.context() as patched:
                patched.setattr(
                    engine, "_choice", lambda *told, broken=broken, **more: {**whole(*told, **more), **broken}
                )
                if stream:
                    patched.setattr(engine, "_stream", lambda choice, *_: streamed(choice))
                answer = await stack.post(CHAT, session.api_key, body(stack, stream=stream))
            assert answer.status_code == 503, broken
            assert (await stack.client.report(session.session_id))["calls"]["running"] == 0, broken
            assert (await stack.post(CHAT, session.api_key, body(stack, seed=1))).status_code == 200, broken
            failed, well = await stack.rows(session)
            assert (failed.status, failed.token_status) == ("infra_error", "missing"), broken
            assert (well.status, well.token_status) == ("ok", "exact"), broken


async def streamed(choice):
    yield f"data: {json.dumps({'choices': [{'delta': {}, **choice}]})}\n\n"
