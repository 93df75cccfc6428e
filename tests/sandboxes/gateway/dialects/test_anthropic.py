"""The Messages dialect, through Anthropic's own SDK."""

import asyncio
import json
import time
from collections import Counter
from contextlib import asynccontextmanager

import anthropic
import pytest
from anthropic import AsyncAnthropic

USER = {"role": "user", "content": "hi"}
TOOL = {
    "name": "search",
    "description": "d",
    "input_schema": {"type": "object", "properties": {"query": {"type": "string"}}},
}


@asynccontextmanager
async def speaking(stack, session):
    """Anthropic's client with the session's key."""
    async with AsyncAnthropic(base_url=stack.url, api_key=session.api_key, max_retries=0) as client:
        yield client


def results(message):
    """The user turn that answers each tool call of a message."""
    uses = [block for block in message.content if block.type == "tool_use"]
    blocks = [{"type": "tool_result", "tool_use_id": use.id, "content": f"found {n}"} for n, use in enumerate(uses)]
    return {"role": "user", "content": blocks}


async def test_an_answer_has_anthropics_shape_and_the_calls_own_id(start):
    async with start(["hello there"]) as stack:
        session = await stack.client.start_session("t")
        async with speaking(stack, session) as client:
            answer = await client.messages.create(
                model=stack.model,
                max_tokens=50,
                system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
                messages=[USER],
                metadata={"user_id": "u"},
            )
        assert [(block.type, block.text) for block in answer.content] == [("text", "hello there")]
        assert (answer.stop_reason, answer.stop_sequence) == ("end_turn", None)
        [row] = await stack.rows(session)
        assert (answer.usage.input_tokens, answer.usage.output_tokens) == (
            len(row.prompt_token_ids),
            len(row.completion_token_ids),
        )
        assert row.call_id == answer.id
        assert [one["role"] for one in json.loads(row.request_messages)] == ["system", "user"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_with_parallel_tools_is_one_segment(start, searching, stream, one_segment):
    async with start([searching, searching, "done"], merge=True) as stack:
        session = await stack.client.start_session("t")
        messages = [USER]
        async with speaking(stack, session) as client:
            for _ in range(3):
                wanted = {"model": stack.model, "max_tokens": 500, "messages": messages, "tools": [TOOL]}
                if stream:
                    async with client.messages.stream(**wanted) as events:
                        answer = await events.get_final_message()
                else:
                    answer = await client.messages.create(**wanted)
                messages += [answer.to_param(), results(answer)]
        assert answer.stop_reason == "end_turn"
        assert [block.type for block in messages[1]["content"]] == ["text", "tool_use", "tool_use"]
        assert messages[1]["content"][1].input == {"query": "the é cake"}
        one_segment(await stack.rows(session), 3)


async def test_arguments_come_back_as_the_model_wrote_them(start, one_segment):
    odd = '{"b": 1.0, "a": [1e3, "\\u00e9"],   "b": 2, "n": 1e999}'

    def reply(prompt):
        said = f'<tool_call>\n{{"name": "search", "arguments": {odd}}}\n</tool_call>'
        return said if prompt.count("<|im_start|>assistant") == 1 else "the answer"

    async with start(reply, merge=True) as stack:
        session = await stack.client.start_session("t")
        async with speaking(stack, session) as client:
            wanted = {"model": stack.model, "max_tokens": 500, "tools": [TOOL]}
            answer = await client.messages.create(**wanted, messages=[USER])
            assert answer.stop_reason == "tool_use"
            turns = [USER, answer.to_param(), results(answer)]
            turns += [(await client.messages.create(**wanted, messages=turns)).to_param(), USER]
            await client.messages.create(**wanted, messages=turns)
        rows = await stack.rows(session)
        [said] = json.loads(rows[0].response_message)["tool_calls"]
        sent = json.loads(rows[1].request_messages)[1]["tool_calls"]
        assert sent == [said]
        assert said["function"]["arguments"] != json.dumps(json.loads(odd))  # what the template writes
        one_segment(rows, 3)


async def test_what_a_client_changed_is_not_taken_for_what_the_model_said(start, searching):
    async with start([searching, "done"]) as stack:
        session = await stack.client.start_session("t")
        async with speaking(stack, session) as client:
            wanted = {"model": stack.model, "max_tokens": 500, "tools": [TOOL]}
            answer = await client.messages.create(**wanted, messages=[USER])
            changed = [block.model_dump() for block in answer.content]
            changed[1]["input"] = {"query": "other"}
            turn = {"role": "assistant", "content": changed}
            await client.messages.create(**wanted, messages=[USER, turn, results(answer)])
        rows = await stack.rows(session)
        sent = json.loads(rows[1].request_messages)[1]["tool_calls"][0]
        assert json.loads(sent["function"]["arguments"]) == {"query": "other"}
        assert rows[1].segment == 1


async def test_events_come_block_by_block_as_in_the_original(start, searching):
    async with start([searching], token_delay_s=0.002) as stack:
        session = await stack.client.start_session("t")
        async with speaking(stack, session) as client:
            wanted = {"model": stack.model, "max_tokens": 500, "messages": [USER], "tools": [TOOL]}
            events = [one async for one in await client.messages.create(**wanted, stream=True)]
        kinds = [one.type for one in events]
        squeezed = [kind for n, kind in enumerate(kinds) if n == 0 or kinds[n - 1] != kind]
        block = ["content_block_start", "content_block_delta", "content_block_stop"]
        assert squeezed == ["message_start", *block, *block, *block, "message_delta", "message_stop"]
        assert events[0].message.usage.input_tokens > 0
        assert events[-2].delta.stop_reason == "tool_use"
        assert events[-2].usage.output_tokens > 0


async def test_the_first_words_arrive_while_the_engine_still_generates(start):
    async with start(["word " * 40], token_delay_s=0.005) as stack:  # about a second
        session = await stack.client.start_session("t")
        started, first = time.monotonic(), None
        async with (
            speaking(stack, session) as client,
            client.messages.stream(model=stack.model, max_tokens=500, messages=[USER]) as stream,
        ):
            async for _ in stream.text_stream:
                if first is None:
                    first = time.monotonic() - started
                    assert stack.engine.generated == 0
        assert first < (time.monotonic() - started) / 2


async def test_why_it_stopped_is_told_in_anthropics_words(start):
    async with start(["one two STOP three"]) as stack:
        session = await stack.client.start_session("t")
        async with speaking(stack, session) as client:
            wanted = {"model": stack.model, "messages": [USER]}
            stopped = await client.messages.create(**wanted, max_tokens=50, stop_sequences=["no", "STOP"])
            cut = await client.messages.create(**wanted, max_tokens=3)
        assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "STOP")
        assert stopped.content[0].text == "one two "
        assert (cut.stop_reason, cut.content[0].text) == ("max_tokens", "one")


async def test_tokens_are_counted_as_they_would_be_sent_and_nothing_is_recorded(start, searching):
    async with start([searching], merge=True) as stack:
        session = await stack.client.start_session("t")
        async with speaking(stack, session) as client:
            wanted = {"model": stack.model, "system": "Look.", "tools": [TOOL]}
            answer = await client.messages.create(**wanted, max_tokens=500, messages=[USER])
            turns = [USER, answer.to_param(), results(answer)]
            counted = await client.messages.count_tokens(**wanted, messages=turns)
            assert len(await stack.rows(session)) == 1
            again = await client.messages.create(**wanted, max_tokens=500, messages=turns)
        assert counted.input_tokens == again.usage.input_tokens


async def test_counting_uses_no_budget_and_is_bounded_by_itself(start):
    async with start() as stack:
        session = await stack.client.start_session("t", limits={"max_calls": 1, "max_prompt_tokens": 1000})
        body = {"model": stack.model, "messages": [USER]}
        assert (await stack.post("/v1/messages", session.api_key, {**body, "max_tokens": 9})).status_code == 200
        assert (await stack.post("/v1/messages", session.api_key, {**body, "max_tokens": 8})).status_code == 400
        operator, engine = stack.gateway.operator_key, {"url": stack.gateway.engines.members[0].url}
        await stack.post("/engines/pause", operator, engine)  # so that each of them takes its time
        count = [asyncio.create_task(stack.post("/v1/messages/count_tokens", session.api_key, body)) for _ in range(20)]
        first = asyncio.as_completed(count, timeout=10)
        assert [(await next(first)).status_code for _ in range(4)] == [429] * 4
        await stack.post("/engines/resume", operator, engine)
        told = Counter(answer.status_code for answer in await asyncio.gather(*count))
        assert told == {200: 16, 429: 4}
        assert (await stack.post("/v1/messages/count_tokens", session.api_key, body)).status_code == 200
        await stack.client.end_session(session)
        assert (await stack.post("/v1/messages/count_tokens", session.api_key, body)).status_code == 409


async def test_a_failed_tool_is_told_to_the_model(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        use = {"type": "tool_use", "id": "c1", "name": "search", "input": {}}
        failed = {"type": "tool_result", "tool_use_id": "c1", "content": "no network", "is_error": True}
        turns = [USER, {"role": "assistant", "content": [use]}, {"role": "user", "content": [failed]}]
        async with speaking(stack, session) as client:
            await client.messages.create(model=stack.model, max_tokens=9, messages=turns, tools=[TOOL])
        [row] = await stack.rows(session)
        assert json.loads(row.request_messages)[2] == {
            "role": "tool",
            "content": "Error: no network",
            "tool_call_id": "c1",
        }


async def test_claude_codes_bill_is_no_part_of_the_prompt(start, one_segment):
    async with start(["one", "two"], merge=True) as stack:
        session = await stack.client.start_session("t")
        async with speaking(stack, session) as client:
            messages = [USER]
            for n in range(2):
                bill = {"type": "text", "text": f"x-anthropic-billing-header: cch={n}"}
                answer = await client.messages.create(
                    model=stack.model, max_tokens=50, messages=messages, system=[bill, {"type": "text", "text": "S"}]
                )
                messages += [answer.to_param(), USER]
        rows = await stack.rows(session)
        one_segment(rows, 2)
        assert not any("billing" in row.request_messages for row in rows)


async def test_a_bearer_key_and_beta_headers_are_taken(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        async with AsyncAnthropic(base_url=stack.url, auth_token=session.api_key, api_key=None) as client:
            answer = await client.beta.messages.create(
                model=stack.model, max_tokens=20, messages=[USER], betas=["interleaved-thinking-2025-05-14"]
            )
        assert answer.content[0].text == "hello there"


async def test_models_are_listed_in_anthropics_shape_to_its_clients(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        async with speaking(stack, session) as client:
            assert [one.id async for one in client.models.list()] == [stack.model]
            assert (await client.models.retrieve(stack.model)).type == "model"
            with pytest.raises(anthropic.NotFoundError):
                await client.models.retrieve("claude-none")


REFUSED = [
    ({"frobnicate": 1}, "frobnicate"),
    ({"max_tokens": None}, "max_tokens"),
    ({"container": "c"}, "container"),
    ({"mcp_servers": []}, "mcp_servers"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools.0"),
    ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ({"thinking": {"type": "enabled"}}, "thinking"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages.0.content.0.type"),
    ({"messages": [{"role": "user", "content": "x", "colour": 1}]}, "messages.0.colour"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
    ({"messages": [USER, {"role": "assistant", "content": "The answer is ("}]}, "messages"),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "colour": 1}]}]},
        "messages.0.content.0.colour",
    ),
    ({"messages": []}, "messages"),
    ({"system": [{"type": "image"}]}, "system.0.type"),
    ({"temperature": 9}, "temperature"),
]


async def test_what_is_not_served_is_a_400_in_anthropics_form_that_names_it(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        for extra, named in REFUSED:
            body = {"model": stack.model, "max_tokens": 9, "messages": [USER], **extra}
            answer = await stack.post("/v1/messages", session.api_key, body)
            told = answer.json()
            assert (answer.status_code, told["type"], told["error"]["type"]) == (400, "error", "invalid_request_error")
            assert named in told["error"]["message"], (extra, told)
        old = await stack.post("/v1/messages", session.api_key, {}, anthropic_version="2023-01-01")
        assert (old.status_code, "2023-06-01" in old.json()["error"]["message"]) == (400, True)
        assert await stack.rows(session) == []


async def test_errors_are_anthropics_own(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        async with speaking(stack, session) as client:
            wanted = {"model": stack.model, "max_tokens": 9, "messages": [USER]}
            with pytest.raises(anthropic.NotFoundError) as unknown:
                await client.messages.create(**{**wanted, "model": "claude"})
            assert unknown.value.type == "not_found_error"
            stack.engine.failures.append("500")
            with pytest.raises(anthropic.InternalServerError) as broken:
                await client.messages.create(**wanted)
            assert broken.value.type == "overloaded_error"
        async with AsyncAnthropic(base_url=stack.url, api_key="nobody", max_retries=0) as client:
            with pytest.raises(anthropic.AuthenticationError):
                await client.messages.create(**wanted)


async def test_an_engine_that_fails_on_the_way_is_an_error_event(start):
    async with start(["word " * 60], token_delay_s=0.002) as stack:
        stack.engine.failures.append("broken")
        session = await stack.client.start_session("t")
        async with speaking(stack, session) as client:
            wanted = {"model": stack.model, "max_tokens": 500, "messages": [USER]}
            with pytest.raises(anthropic.APIStatusError, match="scripted break"):
                [one async for one in await client.messages.create(**wanted, stream=True)]
