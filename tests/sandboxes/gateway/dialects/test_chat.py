"""The Chat Completions dialect, through OpenAI's own SDK."""

import asyncio
import json
import time

import openai
import pytest

USER = {"role": "user", "content": "hi"}


async def streamed(stream):
    """The message, finish reason and usage that the deltas add up to, and the number of content deltas."""
    content, calls, finish, usage, parts = "", {}, None, None, 0
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            parts += bool(choice.delta.content)
            content += choice.delta.content or ""
            for call in choice.delta.tool_calls or []:
                known = calls.setdefault(call.index, {"name": "", "arguments": "", "id": call.id})
                known["name"] += call.function.name or ""
                known["arguments"] += call.function.arguments or ""
    return content, list(calls.values()), finish, usage, parts


async def test_an_answer_has_openais_shape(start):
    async with start(["hello there"]) as stack:
        session = await stack.client.start_session("t")
        answer = await stack.openai(session).chat.completions.create(model=stack.model, messages=[USER])
        assert answer.choices[0].message.content == "hello there"
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage.completion_tokens == len("hello there") + 1
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


async def test_tool_calls_come_as_objects_and_their_text_as_content(start, tools, searching):
    async with start([searching]) as stack:
        session = await stack.client.start_session("t")
        answer = await stack.openai(session).chat.completions.create(model=stack.model, messages=[USER], tools=tools)
        message = answer.choices[0].message
        assert message.content == "I look. "
        assert [json.loads(call.function.arguments)["query"] for call in message.tool_calls] == [
            "the é cake",
            "the lake",
        ]
        assert answer.choices[0].finish_reason == "tool_calls"


async def test_streamed_deltas_add_up_to_the_unstreamed_answer(start, tools, searching):
    async with start([searching], token_delay_s=0.002) as stack:
        client = stack.openai(await stack.client.start_session("t"))
        wanted = {"model": stack.model, "messages": [USER], "tools": tools}
        whole = (await client.chat.completions.create(**wanted)).choices[0].message
        stream = await client.chat.completions.create(**wanted, stream=True, stream_options={"include_usage": True})
        content, calls, finish, usage, _ = await streamed(stream)
        assert content == whole.content
        assert [(call["name"], call["arguments"]) for call in calls] == [
            (call.function.name, call.function.arguments) for call in whole.tool_calls
        ]
        assert all(call["id"] for call in calls)
        assert finish == "tool_calls"
        assert usage.completion_tokens > 0


async def test_the_first_words_arrive_while_the_engine_still_generates(start):
    async with start(["word " * 40], token_delay_s=0.005) as stack:  # about a second
        client = stack.openai(await stack.client.start_session("t"))
        started = time.monotonic()
        stream = await client.chat.completions.create(model=stack.model, messages=[USER], stream=True)
        first = None
        async for chunk in stream:
            if first is None and chunk.choices and chunk.choices[0].delta.content:
                first = time.monotonic() - started
                assert stack.engine.generated == 0
        assert first < (time.monotonic() - started) / 2


async def test_the_sdks_stream_helper_accepts_the_chunks(start, tools, searching):
    async with start([searching]) as stack:
        client = stack.openai(await stack.client.start_session("t"))
        async with client.chat.completions.stream(model=stack.model, messages=[USER], tools=tools) as stream:
            final = await stream.get_final_completion()
        assert final.choices[0].message.tool_calls[1].function.name == "search"
        assert final.choices[0].finish_reason == "tool_calls"


async def test_usage_is_sent_only_where_it_was_asked_for(start):
    async with start() as stack:
        client = stack.openai(await stack.client.start_session("t"))
        stream = await client.chat.completions.create(model=stack.model, messages=[USER], stream=True)
        assert [chunk.usage async for chunk in stream if chunk.usage] == []


async def test_log_probs_reach_the_client_that_asks_streamed_or_not(start):
    async with start(["abc"]) as stack:
        client = stack.openai(await stack.client.start_session("t"))
        answer = await client.chat.completions.create(model=stack.model, messages=[USER], logprobs=True)
        entries = [(one.token, one.logprob) for one in answer.choices[0].logprobs.content]
        assert [token for token, _ in entries] == ["a", "b", "c"]
        stream = await client.chat.completions.create(model=stack.model, messages=[USER], logprobs=True, stream=True)
        chunks = [chunk.choices[0].logprobs async for chunk in stream if chunk.choices]
        assert [(one.token, one.logprob) for part in chunks if part for one in part.content] == entries


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_string_ends_the_text_but_stays_in_the_tokens(start, stream):
    async with start(["one two STOP three"], token_delay_s=0.001) as stack:
        session = await stack.client.start_session("t")
        answer = await stack.openai(session).chat.completions.create(
            model=stack.model, messages=[USER], stop=["STOP"], stream=stream
        )
        content = (await streamed(answer))[0] if stream else answer.choices[0].message.content
        assert content == "one two "
        [row] = await stack.rows(session)
        assert bytes(row.completion_token_ids) == b"one two STOP"


REFUSED = [
    ({"frobnicate": 1}, "frobnicate"),
    ({"n": 0}, "n"),
    ({"n": 129}, "n"),
    ({"logit_bias": {"1": 2}}, "logit_bias"),
    ({"response_format": {"type": "grammar"}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "response_format"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": "always"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "fly"}}}, "tool_choice"),
    ({"parallel_tool_calls": "maybe"}, "parallel_tool_calls"),
    ({"stream_options": {"nope": 1}}, "stream_options.nope"),
    ({"messages": [{"role": "user", "content": "x", "colour": 1}]}, "messages.0.colour"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "image_url"),
    ({"messages": []}, "messages"),
    ({"temperature": 9}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"demonstration": {"role": "assistant", "content": "x"}}, "demonstration"),
]


async def test_what_is_not_served_is_refused_by_name(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        for extra, named in REFUSED:
            body = {"model": stack.model, "messages": [USER], **extra}
            answer = await stack.post("/v1/chat/completions", session.api_key, body)
            error = answer.json()["error"]
            assert (answer.status_code, named in f"{error['param']} {error['message']}") == (400, True), (extra, error)
        assert await stack.rows(session) == []


async def test_a_body_that_is_no_request_is_a_400(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        headers = {"Authorization": f"Bearer {session.api_key}"}
        for raw in (b"", b"[", b"[]", b'{"model": NaN}', b'{"model": "\\ud800"}', b"[" * 100_000, b"\xff"):
            answer = await stack.http.post("/v1/chat/completions", content=raw, headers=headers)
            assert answer.status_code == 400, raw[:20]


async def test_another_model_is_a_404_that_says_which_is_served(start):
    async with start() as stack:
        client = stack.openai(await stack.client.start_session("t"))
        with pytest.raises(openai.NotFoundError, match="scripted"):
            await client.chat.completions.create(model="gpt-4", messages=[USER])


async def test_bare_paths_work_too(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        answer = await stack.post("/chat/completions", session.api_key, {"model": stack.model, "messages": [USER]})
        assert answer.json()["choices"][0]["message"]["content"] == "hello there"
        models = await stack.http.get("/v1/models", headers={"Authorization": f"Bearer {session.api_key}"})
        assert [one["id"] for one in models.json()["data"]] == [stack.model]


async def test_thirty_two_streams_run_side_by_side(start):
    async with start(lambda prompt: prompt.split("user\n")[1][:8] * 12, token_delay_s=0.002) as stack:

        async def one(n: int) -> str:
            client = stack.openai(await stack.client.start_session(f"t{n}"))
            messages = [{"role": "user", "content": f"agent{n:03d} speaks"}]
            content, *_ = await streamed(
                await client.chat.completions.create(model=stack.model, messages=messages, stream=True)
            )
            return content

        assert await asyncio.gather(*map(one, range(32))) == [f"agent{n:03d}" * 12 for n in range(32)]
