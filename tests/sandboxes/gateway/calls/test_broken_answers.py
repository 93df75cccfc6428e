"""An answer that breaks an invariant is recorded, is never trained on, raises an alarm, and still reaches the client."""

import asyncio
import json
import logging

import openai
import pytest

USER = {"role": "user", "content": "hi"}
LOG = "sandboxes.gateway.calls.run"


async def said(stack, session, *, stream, **wanted):
    """The content the client gets."""
    answer = await stack.openai(session).chat.completions.create(
        model=stack.model, messages=[USER], stream=stream, **wanted
    )
    if not stream:
        return answer.choices[0].message.content
    return "".join([choice.delta.content or "" async for chunk in answer for choice in chunk.choices])


def alarms(caplog):
    return [record.getMessage() for record in caplog.records if record.name == LOG and record.levelno == logging.ERROR]


@pytest.mark.parametrize("token_routes", [True, False], ids=["generate", "chat"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("failure", "cause"),
    [("nan", "is not a number"), ("short", "11 log-probs"), ("foreign", "outside the vocabulary of 269")],
)
async def test_tokens_that_cannot_be_believed_are_missing_with_the_cause(
    start, caplog, failure, cause, stream, token_routes
):
    async with start(token_routes=token_routes) as stack:
        session = await stack.client.start_session("t")
        stack.engine.failures.append(failure)
        content = await said(stack, session, stream=stream)
        assert content == ("ello there" if failure == "foreign" else "hello there")
        [row] = await stack.rows(session)
        assert (row.status, row.token_status) == ("ok", "missing")
        assert len(alarms(caplog)) == 1
        assert session.session_id in alarms(caplog)[0]
        assert row.call_id in alarms(caplog)[0]
        assert cause in alarms(caplog)[0]
        exported = await stack.client.export(session.session_id)
        assert not any(exported[row.call_id]["loss_mask"])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("failure", "token_routes", "cause"),
    [
        ("no ids", True, "0 token ids and 12 log-probs came back"),
        ("no ids", False, "0 token ids and 12 log-probs came back"),
        ("no prompt", False, "did not sample from the prompt ids"),
    ],
)
async def test_an_engine_that_omits_ids_leaves_no_exact_row(start, caplog, failure, token_routes, cause, stream):
    async with start(token_routes=token_routes) as stack:
        session = await stack.client.start_session("t")
        stack.engine.failures.append(failure)
        await said(stack, session, stream=stream)
        [row] = await stack.rows(session)
        assert (row.status, row.token_status) == ("ok", "missing")
        [alarm] = alarms(caplog)
        assert cause in alarm


async def test_log_probs_that_are_no_numbers_reach_the_client_as_the_engines_floor(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        stack.engine.failures.append("nan")
        answer = await stack.openai(session).chat.completions.create(
            model=stack.model, messages=[USER], logprobs=True, top_logprobs=1
        )
        assert answer.choices[0].logprobs.content[0].logprob == -9999.0


@pytest.mark.parametrize("token_routes", [True, False], ids=["generate", "chat"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("failure", ["500", "half"])
async def test_an_answer_that_breaks_off_is_a_503_and_an_alarm(start, caplog, failure, stream, token_routes):
    async with start(token_routes=token_routes, token_delay_s=0.001) as stack:
        session = await stack.client.start_session("t")
        stack.engine.failures.append(failure)
        with pytest.raises(openai.APIError):
            await said(stack, session, stream=stream)
        [row] = await stack.rows(session)
        assert (row.status, row.token_status, json.loads(row.response_message)) == ("infra_error", "missing", None)
        assert len(alarms(caplog)) == 1


async def test_a_hang_is_an_alarm_and_a_client_that_leaves_is_none(start, caplog):
    async with start(call_deadline_s=0.4) as stack:
        session = await stack.client.start_session("t")
        stack.engine.failures.append("hang")
        with pytest.raises(openai.InternalServerError):
            await said(stack, session, stream=False)
        assert len(alarms(caplog)) == 1
    caplog.clear()
    async with start(["x" * 200], token_delay_s=0.02) as stack:
        session = await stack.client.start_session("t")
        with pytest.raises(asyncio.TimeoutError):
            async with asyncio.timeout(0.3):
                await said(stack, session, stream=True)
        await asyncio.sleep(0.2)
        [row] = await stack.rows(session)
        assert (row.status, row.token_status) == ("cancelled", "missing")
        assert alarms(caplog) == []


async def test_an_engine_that_does_not_tell_its_vocabulary_is_believed(start, monkeypatch):
    monkeypatch.setattr("sandboxes.gateway.scripted.engine._foreign", lambda sampling: None)
    async with start() as stack:
        session = await stack.client.start_session("t")
        stack.engine.failures.append("foreign")
        await said(stack, session, stream=False)
        [row] = await stack.rows(session)
        assert row.token_status == "exact"
