"""What holds between the dialects: one conversation, however it is spoken, is one prompt."""

import json

import pytest
from anthropic import AsyncAnthropic

from lakehouse.records import Status
from sandboxes.gateway.http import meeting

TOOL = {"type": "object", "properties": {"query": {"type": "string"}}}
CALLED = [("c0", {"query": "the é cake"}), ("c1", {"query": "1.0"})]


def as_chat():
    calls = [
        {
            "id": call_id,
            "type": "function",
            "function": {"name": "search", "arguments": json.dumps(given, ensure_ascii=False)},
        }
        for call_id, given in CALLED
    ]
    return {
        "messages": [
            {"role": "system", "content": "Look things up."},
            {"role": "user", "content": "Where?"},
            {"role": "assistant", "content": "I look.", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c0", "content": "nothing"},
            {"role": "tool", "tool_call_id": "c1", "content": "one"},
            {"role": "assistant", "content": "There."},
            {"role": "user", "content": "Sure?"},
        ],
        "tools": [{"type": "function", "function": {"name": "search", "description": "d", "parameters": TOOL}}],
        "max_tokens": 30,
        "temperature": 0,
    }


def as_responses():
    calls = [
        {
            "type": "function_call",
            "call_id": call_id,
            "name": "search",
            "arguments": json.dumps(given, ensure_ascii=False),
        }
        for call_id, given in CALLED
    ]
    return {
        "instructions": "Look things up.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Where?"}]},
            {"role": "assistant", "content": "I look."},
            *calls,
            {"type": "function_call_output", "call_id": "c0", "output": "nothing"},
            {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "one"}]},
            {"role": "assistant", "content": "There."},
            {"role": "user", "content": "Sure?"},
        ],
        "tools": [{"type": "function", "name": "search", "description": "d", "parameters": TOOL}],
        "max_output_tokens": 30,
        "temperature": 0,
    }


def as_messages():
    uses = [{"type": "tool_use", "id": call_id, "name": "search", "input": given} for call_id, given in CALLED]
    results = [
        {"type": "tool_result", "tool_use_id": "c0", "content": "nothing"},
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "one"}]},
    ]
    return {
        "system": "Look things up.",
        "messages": [
            {"role": "user", "content": "Where?"},
            {"role": "assistant", "content": [{"type": "text", "text": "I look."}, *uses]},
            {"role": "user", "content": results},
            {"role": "assistant", "content": "There."},
            {"role": "user", "content": "Sure?"},
        ],
        "tools": [{"name": "search", "description": "d", "input_schema": TOOL}],
        "max_tokens": 30,
        "extra_body": {"temperature": 0},
    }


async def test_one_conversation_in_three_dialects_has_the_same_ids(start):
    async with start(["once more"], merge=True) as stack:
        session = await stack.client.start_session("t")
        client = stack.openai(session)
        await client.chat.completions.create(model=stack.model, **as_chat())
        await client.responses.create(model=stack.model, **as_responses())
        async with AsyncAnthropic(base_url=stack.url, api_key=session.api_key, max_retries=0) as claude:
            await claude.messages.create(model=stack.model, **as_messages())
        chat, responses, messages = await stack.rows(session)
        for other in (responses, messages):
            assert json.loads(other.request_messages) == json.loads(chat.request_messages)
            assert other.tools == chat.tools
            assert other.prompt_token_ids == chat.prompt_token_ids
            assert other.completion_token_ids == chat.completion_token_ids


async def test_a_session_may_change_its_dialect_and_stays_one_segment(start, searching):
    async with start([searching, "one", "two"], merge=True) as stack:
        session = await stack.client.start_session("t")
        client = stack.openai(session)
        chat = {"messages": [{"role": "user", "content": "look"}], "tools": as_chat()["tools"]}
        first = (await client.chat.completions.create(model=stack.model, **chat)).choices[0].message
        items = [
            {"role": "user", "content": "look"},
            {"role": "assistant", "content": first.content},
            *({"type": "function_call", "call_id": call.id, **call.function.model_dump()} for call in first.tool_calls),
            *({"type": "function_call_output", "call_id": call.id, "output": "-"} for call in first.tool_calls),
        ]
        second = await client.responses.create(model=stack.model, input=items, tools=as_responses()["tools"])
        uses = [
            {"type": "tool_use", "id": call.id, "name": "search", "input": json.loads(call.function.arguments)}
            for call in first.tool_calls
        ]
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": "-"} for call in first.tool_calls]
        turns = [
            {"role": "user", "content": "look"},
            {"role": "assistant", "content": [{"type": "text", "text": first.content}, *uses]},
            {"role": "user", "content": results},
            {"role": "assistant", "content": second.output_text},
            {"role": "user", "content": "more"},
        ]
        async with AsyncAnthropic(base_url=stack.url, api_key=session.api_key, max_retries=0) as claude:
            await claude.messages.create(model=stack.model, messages=turns, tools=as_messages()["tools"], max_tokens=50)
        assert [row.segment for row in await stack.rows(session)] == [0, 0, 0]


async def test_a_stream_says_something_while_a_tool_call_is_made(start, searching, monkeypatch):
    monkeypatch.setattr(meeting, "KEEP_ALIVE_S", 0.05)
    async with start([searching], token_delay_s=0.005) as stack:
        session = await stack.client.start_session("t")
        body = {"model": stack.model, **as_chat(), "max_tokens": 500, "stream": True}
        raw = await stack.post("/v1/chat/completions", session.api_key, body)
        assert raw.content.count(meeting.KEEP_ALIVE) > 2
        async with AsyncAnthropic(base_url=stack.url, api_key=session.api_key, max_retries=0) as claude:
            wanted = {**as_messages(), "max_tokens": 500}
            async with claude.messages.stream(model=stack.model, **wanted) as stream:
                assert (await stream.get_final_message()).stop_reason == "tool_use"


@pytest.mark.parametrize("dialect", ["chat/completions", "responses", "messages"])
@pytest.mark.parametrize("failure", [None, "broken"])
async def test_a_stream_that_is_a_tool_call_from_the_start_begins_and_is_kept_alive(
    start, searching, monkeypatch, dialect, failure
):
    monkeypatch.setattr(meeting, "KEEP_ALIVE_S", 0.05)
    asked = {"chat/completions": as_chat, "responses": as_responses, "messages": as_messages}[dialect]()
    limit = "max_output_tokens" if dialect == "responses" else "max_tokens"
    body = {**asked, limit: 500, "stream": True}
    body.pop("extra_body", None)
    async with start([{**searching, "content": ""}], token_delay_s=0.005) as stack:
        stack.engine.failures.extend([failure] if failure else [])
        session = await stack.client.start_session("t")
        headers = {"Authorization": f"Bearer {session.api_key}"}
        wanted = {"model": stack.model, **body}
        async with stack.http.stream("POST", f"/v1/{dialect}", json=wanted, headers=headers) as answer:
            assert (answer.status_code, stack.engine.generated, stack.engine.aborted) == (200, 0, 0)  # it still runs
            raw = (await answer.aread()).decode()
        assert raw.count(meeting.KEEP_ALIVE.decode()) > 2
        assert ("scripted break" in raw, "the lake" in raw) == (bool(failure), not failure)
        assert (await stack.rows(session))[0].status == (Status.INFRA_ERROR if failure else Status.OK)


async def test_a_stream_whose_call_waits_for_an_engine_does_not_begin(start, monkeypatch):
    """What it may be told then is a status, with which an SDK tries again by itself."""
    monkeypatch.setattr(meeting, "KEEP_ALIVE_S", 0.02)
    async with start(["yes"], call_deadline_s=0.3) as stack:
        session = await stack.client.start_session("t")
        await stack.post("/engines/pause", stack.gateway.operator_key, {"url": stack.gateway.settings.engine})
        body = {"model": stack.model, **as_chat(), "stream": True}
        assert (await stack.post("/v1/chat/completions", session.api_key, body)).status_code == 503


async def test_reasoning_goes_to_the_client_and_back_without_a_fork(start):
    call = {"id": "c0", "type": "function", "function": {"name": "search", "arguments": '{"query": "x"}'}}
    replies = [
        {"reasoning": "I must look.", "content": "Look. ", "tool_calls": [call]},
        {"reasoning": "so", "content": "yes"},
    ]
    async with start(replies, think=True, merge=True) as stack:
        one, two = await stack.client.start_session("t"), await stack.client.start_session("u")
        turns, items = [{"role": "user", "content": "hi"}], [{"role": "user", "content": "hi"}]
        async with AsyncAnthropic(base_url=stack.url, api_key=one.api_key, max_retries=0) as claude:
            for _ in range(2):
                wanted = {"model": stack.model, "messages": turns, "tools": as_messages()["tools"], "max_tokens": 300}
                async with claude.messages.stream(**wanted) as stream:
                    said = await stream.get_final_message()
                uses = [block.id for block in said.content if block.type == "tool_use"]
                results = [{"type": "tool_result", "tool_use_id": use, "content": "y"} for use in uses]
                turns += [said.to_param(), {"role": "user", "content": results}]
        for _ in range(2):
            wanted = {"model": stack.model, "input": items, "tools": as_responses()["tools"]}
            async with stack.openai(two).responses.stream(**wanted) as stream:
                told = await stream.get_final_response()
            calls = [item.call_id for item in told.output if item.type == "function_call"]
            items += [item.model_dump() for item in told.output]
            items += [{"type": "function_call_output", "call_id": call_id, "output": "y"} for call_id in calls]
        assert [block["thinking"] for block in map(dict, turns[1]["content"]) if block["type"] == "thinking"] == [
            "I must look."
        ]
        assert told.output[0].content[0].text == "so"
        for session in (one, two):
            assert [row.segment for row in await stack.rows(session)] == [0, 0]
