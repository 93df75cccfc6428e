"""What a call leaves behind: one exact row, whatever the client did with the answer."""

import json

import pytest

from lakehouse.records import Status

USER = {"role": "user", "content": "hi"}
VOLATILE = (
    "call_id",
    "call_index",
    "segment",
    "fork_reason",
    "latency_s",
    "started_at",
    "session_id",
    "response_message",
)


async def test_a_row_has_ids_log_probs_versions_and_what_shaped_them(start):
    async with start(["abc"], weight_version="7") as stack:
        session = await stack.client.start_session("t")
        await stack.openai(session).chat.completions.create(model=stack.model, messages=[USER], temperature=0.5, seed=3)
        [row] = await stack.rows(session)
        assert bytes(row.completion_token_ids[:-1]) == b"abc"
        assert len(row.logprobs) == len(row.completion_token_ids) == len(row.weight_versions) == 4
        assert set(row.weight_versions) == {7}
        assert (row.token_status, row.token_route, row.status, row.finish_reason) == ("exact", "generate", "ok", "stop")
        shaped = {
            "temperature": 0.5,
            "top_p": 1.0,
            "seed": 3,
            "logprobs": 0,
            "max_tokens": 16_384 - len(row.prompt_token_ids),
        }
        assert json.loads(row.sampling) == shaped
        assert json.loads(row.request_messages) == [USER]
        assert json.loads(row.response_message)["content"] == "abc"
        assert row.engine_version == "scripted-1"
        assert len(row.template_digest) == 64
        assert row.latency_s > 0


async def test_streamed_and_unstreamed_calls_leave_equal_rows(start, tools, searching):
    async with start([searching]) as stack:
        session = await stack.client.start_session("t")
        wanted = {"model": stack.model, "messages": [USER], "tools": tools}
        await stack.openai(session).chat.completions.create(**wanted)
        async for _ in await stack.openai(session).chat.completions.create(**wanted, stream=True):
            pass
        whole, streamed = await stack.rows(session)
        assert whole.model_dump(exclude=set(VOLATILE)) == streamed.model_dump(exclude=set(VOLATILE))
        assert streamed.fork_reason == "retry"  # the same prompt, asked again on purpose


async def test_turns_chain_as_true_prefixes(start, tools, searching):
    async with start([searching, "done"], merge=True) as stack:
        session = await stack.client.start_session("t")
        client = stack.openai(session)
        messages = [{"role": "system", "content": "be the best"}, USER]
        first = (
            (await client.chat.completions.create(model=stack.model, messages=messages, tools=tools)).choices[0].message
        )
        observed = [{"role": "tool", "content": "the page", "tool_call_id": call.id} for call in first.tool_calls]
        messages += [first.model_dump(), *observed]  # with every null field, as agents send it back
        await client.chat.completions.create(model=stack.model, messages=messages, tools=tools)
        one, two = await stack.rows(session)
        known = one.prompt_token_ids + one.completion_token_ids
        assert two.prompt_token_ids[: len(known)] == known
        assert (two.parent_call_id, two.segment, two.fork_reason) == (one.call_id, 0, None)


async def test_a_version_that_changes_while_generating_is_kept_per_token(start, monkeypatch):
    async with start(["abcd"]) as stack:
        choice = stack.engine._choice

        def swapped(*args, **kwargs):
            spans = [{"version": "1", "start": 0, "end": 2}, {"version": "2", "start": 2, "end": 5}]
            return {**choice(*args, **kwargs), "weight_versions": spans}

        monkeypatch.setattr(stack.engine, "_choice", swapped)
        session = await stack.client.start_session("t")
        await stack.openai(session).chat.completions.create(model=stack.model, messages=[USER])
        [row] = await stack.rows(session)
        assert row.weight_versions == [1, 1, 2, 2, 2]


async def test_weights_without_a_registered_version_are_refused_before_the_first_call(start):
    async with start(weight_version="default") as stack:
        with pytest.raises(Exception, match=r"409.*'default'.*update_weight_version"):
            await stack.client.start_session("t")
        assert await stack.client.start_session("t", mode="demonstration")  # samples nothing, needs no version


async def test_a_label_that_changes_to_no_version_later_makes_the_tokens_missing(start):
    def relabelled(_):
        stack.engine.weight_version = "nightly"
        return "hello there"

    async with start(relabelled) as stack:
        session = await stack.client.start_session("t")
        answer = await stack.openai(session).chat.completions.create(model=stack.model, messages=[USER])
        assert answer.choices[0].message.content == "hello there"
        [row] = await stack.rows(session)
        assert row.token_status == "missing"
        assert set(row.weight_versions) == {-2}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_log_prob_that_is_no_number_makes_the_tokens_missing_not_the_call(start, stream):
    async with start() as stack:
        session = await stack.client.start_session("t")
        stack.engine.failures.append("nan")
        answer = await stack.openai(session).chat.completions.create(model=stack.model, messages=[USER], stream=stream)
        if stream:
            assert [chunk async for chunk in answer]
        [row] = await stack.rows(session)
        assert (row.status, row.token_status, row.logprobs) == (Status.OK, "missing", None)


@pytest.mark.parametrize(
    "said",
    [
        '<tool_call>\n{"name": "search", "argum',
        '<tool_call>\n{"nam": 1}\n</tool_call>',
        '<tool_call>{"name": "search", "arguments": 5}</tool_call>',
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_malformed_tool_call_becomes_text_and_is_flagged(start, tools, said, stream):
    async with start([said]) as stack:
        session = await stack.client.start_session("t")
        answer = await stack.openai(session).chat.completions.create(
            model=stack.model, messages=[USER], tools=tools, stream=stream
        )
        if stream:
            content = "".join([chunk.choices[0].delta.content or "" async for chunk in answer])
        else:
            content = answer.choices[0].message.content
        assert content == said
        [row] = await stack.rows(session)
        assert (row.status, row.finish_reason, row.token_status) == ("model_error", "stop", "exact")


async def test_a_reply_the_engines_parser_chokes_on_becomes_text(start, tools):
    async with start(["odd"]) as stack:
        session = await stack.client.start_session("t")
        stack.engine.failures.append("parser")
        answer = await stack.openai(session).chat.completions.create(model=stack.model, messages=[USER], tools=tools)
        assert answer.choices[0].message.content == "odd"
        [row] = await stack.rows(session)
        assert (row.status, row.token_status) == ("model_error", "exact")


async def test_an_answer_cut_off_by_the_limit_is_truncated(start):
    async with start(["a long story"]) as stack:
        session = await stack.client.start_session("t")
        answer = await stack.openai(session).chat.completions.create(model=stack.model, messages=[USER], max_tokens=6)
        assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("a long", "length")
        [row] = await stack.rows(session)
        assert (row.status, row.token_status) == ("truncated", "exact")


async def test_an_empty_answer_is_an_answer(start):
    async with start([""]) as stack:
        session = await stack.client.start_session("t")
        answer = await stack.openai(session).chat.completions.create(model=stack.model, messages=[USER])
        assert answer.choices[0].message.content == ""
        [row] = await stack.rows(session)
        assert (row.status, len(row.completion_token_ids)) == ("ok", 1)
