"""Recorded ids are reused. Where they cannot be, the row says so."""

import json
from itertools import pairwise

USER = {"role": "user", "content": "hi"}
MORE = {"role": "user", "content": "go on with the search"}


async def converse(stack, session, turns, *, stream=False, **wanted):
    """`turns` calls, each answer sent back as the client got it. Returns the rows."""
    messages = [USER]
    for _ in range(turns):
        answer = await stack.openai(session).chat.completions.create(
            model=stack.model, messages=messages, stream=stream, **wanted
        )
        if stream:
            said = {"role": "assistant", "content": "".join([c.choices[0].delta.content or "" async for c in answer])}
        else:
            said = answer.choices[0].message.model_dump(exclude_none=True)
        messages = [*messages, said, MORE]
    return await stack.rows(session)


def chained(rows):
    return [
        later.prompt_token_ids[: len(known)] == known and later.parent_call_id == earlier.call_id and later.segment == 0
        for earlier, later in pairwise(rows)
        for known in [earlier.prompt_token_ids + earlier.completion_token_ids]
    ]


async def test_sampled_ids_are_reused_where_rendering_would_give_others(start):
    async with start(["hello the answer", "the name"], merge=True) as stack:
        rows = await converse(stack, await stack.client.start_session("t"), 4)
        assert chained(rows) == [True] * 3
        assert (
            bytes(rows[0].completion_token_ids[:-1]) == b"hello the answer"
        )  # one id per byte, where rendering merges


async def test_the_bridge_is_what_rendering_puts_between_the_turns(start):
    async with start(["the answer"], merge=True) as stack:
        first, second = await converse(stack, await stack.client.start_session("t"), 2)
        bridge = second.prompt_token_ids[len(first.prompt_token_ids) + len(first.completion_token_ids) :]
        assert bridge[0] == ord("\n")  # the end-of-turn token was sampled, the line break after it is the template's
        assert bridge[1] == 256


async def test_a_turn_cut_off_by_the_limit_gets_the_templates_end_of_turn(start):
    async with start(["the answer is long"], merge=True) as stack:
        rows = await converse(stack, await stack.client.start_session("t"), 3, max_tokens=10)
        assert chained(rows) == [True] * 2
        end = len(rows[0].prompt_token_ids) + len(rows[0].completion_token_ids)
        assert rows[1].prompt_token_ids[end : end + 2] == [257, ord("\n")]


async def test_a_streamed_turn_is_spliced_as_an_unstreamed_one(start):
    async with start(["hello the é answer"], merge=True, token_delay_s=0.001) as stack:
        rows = await converse(stack, await stack.client.start_session("t"), 3, stream=True)
        assert chained(rows) == [True] * 2


async def test_bytes_that_are_no_text_do_not_fork(start):
    async with start(["x é y"], merge=True) as stack:  # cut in the middle of a character
        rows = await converse(stack, await stack.client.start_session("t"), 3, max_tokens=3)
        assert rows[0].completion_token_ids[-1] >= 0x80
        assert chained(rows) == [True] * 2


async def test_a_template_that_changes_earlier_turns_starts_a_segment_that_says_retokenised(start):
    async with start(["  the answer  "], strip=True) as stack:
        first, second, third = await converse(stack, await stack.client.start_session("t"), 3)
        assert (first.segment, first.fork_reason) == (0, "root")
        assert (second.segment, second.fork_reason, second.parent_call_id) == (1, "retokenised", None)
        assert (third.segment, third.fork_reason, third.parent_call_id) == (2, "retokenised", None)


async def test_a_turn_the_client_rewrote_is_not_spliced(start):
    async with start(["the answer"], merge=True) as stack:
        session = await stack.client.start_session("t")
        client = stack.openai(session)
        await client.chat.completions.create(model=stack.model, messages=[USER])
        rewritten = [USER, {"role": "assistant", "content": "another answer"}, MORE]
        await client.chat.completions.create(model=stack.model, messages=rewritten)
        rows = await stack.rows(session)
        assert (rows[1].parent_call_id, rows[1].fork_reason) == (None, "compaction")
        assert json.loads(rows[1].request_messages)[1]["content"] == "another answer"


async def test_other_tools_are_another_conversation(start, tools):
    async with start(["the answer"], merge=True) as stack:
        session = await stack.client.start_session("t")
        client = stack.openai(session)
        answer = await client.chat.completions.create(model=stack.model, messages=[USER])
        messages = [USER, answer.choices[0].message.model_dump(exclude_none=True), MORE]
        await client.chat.completions.create(model=stack.model, messages=messages, tools=tools)
        rows = await stack.rows(session)
        assert (rows[1].parent_call_id, rows[1].segment, rows[1].fork_reason) == (None, 1, "other")


async def test_a_client_that_writes_the_arguments_of_a_call_anew_goes_on_from_what_was_sampled(start, tools):
    arguments = '{"query": "the é cake",  "deep": {"b": 1, "a": 2.0}}'
    call = {"id": "c", "type": "function", "function": {"name": "search", "arguments": arguments}}
    async with start([{"role": "assistant", "content": "", "tool_calls": [call]}, "done"], merge=True) as stack:
        session = await stack.client.start_session("t")
        wanted = {"model": stack.model, "tools": tools}
        first = await stack.openai(session).chat.completions.create(messages=[USER], **wanted)
        said = first.choices[0].message.model_dump(exclude_none=True)
        [told] = said["tool_calls"]
        told["function"]["arguments"] = json.dumps(json.loads(told["function"]["arguments"]), separators=(",", ":"))
        result = {"role": "tool", "tool_call_id": told["id"], "content": "found"}
        await stack.openai(session).chat.completions.create(messages=[USER, said, result], **wanted)
        assert chained(await stack.rows(session)) == [True]
