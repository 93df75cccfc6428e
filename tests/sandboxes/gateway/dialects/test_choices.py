"""Several choices, forced tools, structured answers, reasoning: what a client may ask of one call."""

import asyncio
import json

import pytest

USER = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


def counted():
    """Replies that differ from call to call."""
    said = iter(range(1000))
    return lambda prompt: f"reply {next(said)}"


async def joined(stream):
    """Per choice: content, reasoning, log-prob tokens, finish reason, call id."""
    found = {}
    async for chunk in stream:
        for choice in chunk.choices:
            one = found.setdefault(
                choice.index, {"content": "", "reasoning": "", "tokens": [], "finish": None, "call_id": None}
            )
            one["content"] += choice.delta.content or ""
            one["reasoning"] += getattr(choice.delta, "reasoning_content", None) or ""
            one["tokens"] += [entry.token for entry in (choice.logprobs.content if choice.logprobs else [])]
            one["finish"] = choice.finish_reason or one["finish"]
            one["call_id"] = getattr(choice, "call_id", None) or one["call_id"]
    return [found[index] for index in sorted(found)]


async def test_choices_are_sibling_calls_over_one_prompt(start):
    async with start(counted()) as stack:
        session = await stack.client.start_session("t")
        answer = await stack.openai(session).chat.completions.create(model=stack.model, messages=[USER], n=3, seed=7)
        rows = await stack.rows(session)
        assert [choice.index for choice in answer.choices] == [0, 1, 2]
        assert len({choice.message.content for choice in answer.choices}) == 3
        assert [choice.call_id for choice in answer.choices] == [row.call_id for row in rows]
        assert answer.id == rows[0].call_id
        assert len({tuple(row.prompt_token_ids) for row in rows}) == 1
        assert [(row.segment, row.fork_reason, row.parent_call_id) for row in rows] == [
            (0, "root", None),
            (1, "sibling", None),
            (2, "sibling", None),
        ]
        assert [json.loads(row.sampling)["seed"] for row in rows] == [7, 8, 9]
        assert answer.usage.prompt_tokens == len(rows[0].prompt_token_ids)
        assert answer.usage.completion_tokens == sum(len(row.completion_token_ids) for row in rows)


async def test_choices_are_generated_side_by_side(start):
    async with start(["word " * 10], token_delay_s=0.01) as stack:
        client = stack.openai(await stack.client.start_session("t"))
        await client.chat.completions.create(model=stack.model, messages=[USER])
        alone, at = asyncio.get_running_loop().time(), asyncio.get_running_loop().time
        await client.chat.completions.create(model=stack.model, messages=[USER], seed=1)
        alone = at() - alone
        began = at()
        await client.chat.completions.create(model=stack.model, messages=[USER], n=4)
        assert at() - began < 2 * alone


async def test_a_choice_that_is_taken_up_goes_on_in_its_own_segment(start):
    async with start(counted()) as stack:
        session = await stack.client.start_session("t")
        client = stack.openai(session)
        first = await client.chat.completions.create(model=stack.model, messages=[USER], n=2)
        said = first.choices[1].message.model_dump(exclude_none=True)
        await client.chat.completions.create(model=stack.model, messages=[USER, said, USER])
        rows = await stack.rows(session)
        assert (rows[2].parent_call_id, rows[2].segment, rows[2].fork_reason) == (rows[1].call_id, 1, None)


async def test_choices_are_no_orphans_of_retries(start):
    async with start(counted()) as stack:
        session = await stack.client.start_session("t")
        client = stack.openai(session)
        await client.chat.completions.create(model=stack.model, messages=[USER], n=2)
        await client.chat.completions.create(model=stack.model, messages=[USER], n=2)
        rows = await stack.rows(session)
        kept = await stack.client.export(session.session_id, drop_retry_orphans=True)
        assert list(kept) == [row.call_id for row in rows[2:]]


async def test_streamed_choices_are_told_apart_by_index(start):
    async with start(counted(), token_delay_s=0.002) as stack:
        session = await stack.client.start_session("t")
        stream = await stack.openai(session).chat.completions.create(
            model=stack.model, messages=[USER], n=3, stream=True
        )
        choices = await joined(stream)
        rows = await stack.rows(session)
        assert [choice["content"] for choice in choices] == [
            json.loads(row.response_message)["content"] for row in rows
        ]
        assert [choice["call_id"] for choice in choices] == [row.call_id for row in rows]
        assert {choice["finish"] for choice in choices} == {"stop"}


@pytest.mark.parametrize("stream", [False, True])
async def test_an_idempotency_key_gives_all_choices_again(start, stream):
    async with start(counted()) as stack:
        session = await stack.client.start_session("t")
        client = stack.openai(session)
        asked = {"model": stack.model, "messages": [USER], "n": 3, "extra_headers": {"Idempotency-Key": "k"}}

        async def ask():
            answer = await client.chat.completions.create(**asked, stream=stream)
            if stream:
                return [choice["content"] for choice in await joined(answer)]
            return [choice.message.content for choice in answer.choices]

        assert await ask() == await ask()
        assert stack.engine.generated == len(await stack.rows(session)) == 3


async def test_where_one_choice_fails_the_request_does_and_every_choice_is_recorded(start):
    async with start(["word " * 10], token_delay_s=0.01) as stack:
        session = await stack.client.start_session("t")
        stack.engine.failures.append("500")
        with pytest.raises(Exception, match="EngineDeadError"):
            await stack.openai(session).chat.completions.create(model=stack.model, messages=[USER], n=3)
        rows = await stack.rows(session)
        assert [(row.status, row.token_status) for row in rows] == [("infra_error", "missing")] * 3


async def test_more_choices_than_may_run_at_once_are_refused(start):
    async with start(max_calls=2) as stack:
        session = await stack.client.start_session("t")
        body = {"model": stack.model, "messages": [USER], "n": 3}
        answer = await stack.post("/v1/chat/completions", session.api_key, body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "n")


@pytest.mark.parametrize(
    ("asked", "constraint"),
    [
        ({"response_format": {"type": "json_object"}}, {"json_object": True}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
            {"json": SCHEMA},
        ),
        ({"response_format": {"type": "text"}}, None),
    ],
    ids=["json", "schema", "text"],
)
async def test_what_an_answer_was_held_to_is_in_the_row(start, asked, constraint):
    async with start(['{"a": "b"}']) as stack:
        session = await stack.client.start_session("t")
        answer = await stack.openai(session).chat.completions.create(model=stack.model, messages=[USER], **asked)
        assert json.loads(answer.choices[0].message.content) == {"a": "b"}
        [row] = await stack.rows(session)
        assert json.loads(row.sampling).get("structured_outputs") == constraint
        assert (
            stack.engine.asked[-1]["sampling_params"].get("structured_outputs", {}).items()
            >= (constraint or {}).items()
        )


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "search"}}])
async def test_a_forced_tool_reaches_the_engines_grammar(start, tools, searching, choice):
    async with start([searching]) as stack:
        session = await stack.client.start_session("t")
        answer = await stack.openai(session).chat.completions.create(
            model=stack.model, messages=[USER], tools=tools, tool_choice=choice
        )
        assert answer.choices[0].message.tool_calls[0].function.name == "search"
        [row] = await stack.rows(session)
        assert json.loads(json.loads(row.sampling)["structured_outputs"]["structural_tag"])["choice"] == choice


async def test_one_tool_call_at_most_where_parallel_ones_are_off(start, tools, searching):
    async with start([searching]) as stack:
        session = await stack.client.start_session("t")
        answer = await stack.openai(session).chat.completions.create(
            model=stack.model, messages=[USER], tools=tools, parallel_tool_calls=False
        )
        assert len(answer.choices[0].message.tool_calls) == 1
        assert len(searching["tool_calls"]) == 2  # the scripted policy does not follow the grammar


async def test_with_tools_off_a_call_stays_text(start, tools, searching):
    async with start([searching]) as stack:
        session = await stack.client.start_session("t")
        answer = await stack.openai(session).chat.completions.create(
            model=stack.model, messages=[USER], tools=tools, tool_choice="none"
        )
        assert answer.choices[0].message.tool_calls is None
        assert "<tool_call>" in answer.choices[0].message.content


@pytest.mark.parametrize("top", [0, 1])
async def test_streamed_log_probs_come_with_their_words_and_add_up_to_the_unstreamed_ones(start, top):
    async with start(["some é words here"], token_delay_s=0.01) as stack:
        client = stack.openai(await stack.client.start_session("t"))
        asked = {"model": stack.model, "messages": [USER], "logprobs": True, "top_logprobs": top}
        whole = (await client.chat.completions.create(**asked)).choices[0].logprobs.content
        parts = []
        async for chunk in await client.chat.completions.create(**asked, stream=True):
            parts += [one.logprobs.content for one in chunk.choices if one.logprobs]
        assert [entry.model_dump() for part in parts for entry in part] == [entry.model_dump() for entry in whole]
        assert len(parts) > 1
        assert {len(entry.top_logprobs) for entry in whole} == {top}


THOUGHT = {"role": "assistant", "content": "the answer", "reasoning": "hm, the name"}
THINKING_CALL = {
    "role": "assistant",
    "content": None,
    "reasoning": "I look",
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "search", "arguments": '{"query": "x"}'}}],
}


async def test_reasoning_is_apart_from_content_streamed_or_not(start):
    async with start([THOUGHT], think=True, token_delay_s=0.005) as stack:
        session = await stack.client.start_session("t")
        client = stack.openai(session)
        whole = (await client.chat.completions.create(model=stack.model, messages=[USER])).choices[0].message
        assert (whole.content, whole.reasoning_content) == ("the answer", "hm, the name")
        stream = await client.chat.completions.create(model=stack.model, messages=[USER], stream=True)
        [choice] = await joined(stream)
        assert (choice["content"], choice["reasoning"]) == ("the answer", "hm, the name")
        rows = await stack.rows(session)
        assert rows[0].completion_token_ids == rows[1].completion_token_ids
        assert json.loads(rows[0].response_message) == json.loads(rows[1].response_message) == THOUGHT


async def test_what_render_says_of_reasoning_is_passed_on_to_generate(start):
    async with start([THOUGHT], think=True) as stack:
        client = stack.openai(await stack.client.start_session("t"))
        extra = {"chat_template_kwargs": {"enable_thinking": True}}
        await client.chat.completions.create(model=stack.model, messages=[USER], extra_body=extra)
        asked = stack.engine.asked[-1]
        assert asked["reasoning_ended"] is False
        assert asked["reasoning_parser_kwargs"] == extra


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_that_is_echoed_within_a_tool_loop_continues_the_call(start, tools, field):
    async with start([THINKING_CALL, "done"], think=True, merge=True) as stack:
        session = await stack.client.start_session("t")
        client = stack.openai(session)
        first = (
            (await client.chat.completions.create(model=stack.model, messages=[USER], tools=tools)).choices[0].message
        )
        said = first.model_dump(exclude_none=True)
        said[field] = said.pop("reasoning_content")
        observed = {"role": "tool", "content": "the page", "tool_call_id": first.tool_calls[0].id}
        await client.chat.completions.create(model=stack.model, messages=[USER, said, observed], tools=tools)
        one, two = await stack.rows(session)
        known = one.prompt_token_ids + one.completion_token_ids
        assert two.prompt_token_ids[: len(known)] == known
        assert (two.parent_call_id, two.segment, two.fork_reason) == (one.call_id, 0, None)


async def test_a_template_that_drops_earlier_reasoning_starts_a_segment_that_says_retokenised(start):
    async with start([THOUGHT], think=True) as stack:
        session = await stack.client.start_session("t")
        client = stack.openai(session)
        first = (await client.chat.completions.create(model=stack.model, messages=[USER])).choices[0].message
        messages = [USER, first.model_dump(exclude_none=True), USER]
        await client.chat.completions.create(model=stack.model, messages=messages)
        rows = await stack.rows(session)
        assert (rows[1].parent_call_id, rows[1].segment, rows[1].fork_reason) == (None, 1, "retokenised")
