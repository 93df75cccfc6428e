"""Demonstrations become token rows by the difference of two renderings."""

from itertools import pairwise

import pytest

USER = {"role": "user", "content": "hi"}


def turn(n):
    call = {"id": f"c{n}", "type": "function", "function": {"name": "search", "arguments": f'{{"query": "the {n}"}}'}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


async def demonstrate(stack, session, turns, tools, **more):
    messages = [USER]
    for message in turns:
        answer = await stack.openai(session).chat.completions.create(
            model=stack.model, messages=messages, tools=tools, extra_body={"demonstration": message}, **more
        )
        messages.append(answer.choices[0].message.model_dump(exclude_none=True))
        messages += [
            {"role": "tool", "content": "seen", "tool_call_id": c["id"]} for c in message.get("tool_calls") or []
        ]
    return messages, await stack.rows(session)


async def test_demonstrated_turns_chain_and_are_marked_as_sampled_by_nobody(start, tools):
    async with start(merge=True) as stack:
        session = await stack.client.start_session("t", mode="demonstration")
        final = {"role": "assistant", "content": "the answer"}
        messages, rows = await demonstrate(stack, session, [turn(0), turn(1), final], tools)
        assert messages[-1]["content"] == "the answer"
        assert messages[1]["tool_calls"] == turn(0)["tool_calls"]
        for earlier, later in pairwise(rows):
            known = earlier.prompt_token_ids + earlier.completion_token_ids
            assert later.prompt_token_ids[: len(known)] == known
            assert later.parent_call_id == earlier.call_id
        assert [row.fork_reason for row in rows] == ["root", None, None]
        assert {(row.token_route, row.token_status, row.status) for row in rows} == {("demonstration", "exact", "ok")}
        assert all(row.logprobs is None and set(row.weight_versions) == {-1} for row in rows)
        assert [row.finish_reason for row in rows] == ["tool_calls", "tool_calls", "stop"]
        assert stack.engine.generated == 0


async def test_the_completion_ends_with_the_end_of_turn_token_and_nothing_after_it(start, tools):
    async with start() as stack:
        session = await stack.client.start_session("t", mode="demonstration")
        _, [row] = await demonstrate(stack, session, [{"role": "assistant", "content": "done"}], tools)
        assert row.completion_token_ids == [*b"done", 257]


async def test_a_demonstration_may_be_streamed(start, tools):
    async with start() as stack:
        session = await stack.client.start_session("t", mode="demonstration")
        client = stack.openai(session)
        async with client.chat.completions.stream(
            model=stack.model, messages=[USER], tools=tools, extra_body={"demonstration": turn(0)}
        ) as stream:
            final = await stream.get_final_completion()
        assert final.choices[0].message.tool_calls[0].function.arguments == '{"query": "the 0"}'


@pytest.mark.parametrize("demonstration", [None, {"role": "user", "content": "x"}])
async def test_a_demonstration_session_takes_assistant_messages_only(start, demonstration):
    async with start() as stack:
        session = await stack.client.start_session("t", mode="demonstration")
        body = {"model": stack.model, "messages": [USER], "demonstration": demonstration}
        answer = await stack.post("/v1/chat/completions", session.api_key, body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "demonstration")


async def test_a_demonstration_is_taught_as_the_template_writes_it(start):
    async with start(strip=True, merge=True) as stack:
        session = await stack.client.start_session("t", mode="demonstration")
        body = {"model": stack.model, "messages": [USER], "demonstration": {"role": "assistant", "content": " x "}}
        assert (await stack.post("/v1/chat/completions", session.api_key, body)).status_code == 200
        [row] = await stack.rows(session)
        assert bytes(row.completion_token_ids[:-1]) == b"x"


async def test_a_demonstration_that_changes_the_prompts_own_tokens_is_refused_with_the_cause(start):
    async with start(merge=True) as stack:  # two line breaks are one token, so the prompt's last one would change
        session = await stack.client.start_session("t", mode="demonstration")
        body = {"model": stack.model, "messages": [USER], "demonstration": {"role": "assistant", "content": "\nx"}}
        answer = await stack.post("/v1/chat/completions", session.api_key, body)
        assert (answer.status_code, "line break" in answer.text) == (400, True)
        assert await stack.rows(session) == []
