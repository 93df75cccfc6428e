"""The recording laws on a real vLLM engine with tiny weights: its ids rarely are what its tokenizer would give for the text."""

import json
import re
from itertools import pairwise

import httpx
import pytest
from openai import AsyncOpenAI, BadRequestError

from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings

pytestmark = pytest.mark.engine

SYSTEM = {"role": "system", "content": "You look things up."}
USER = {"role": "user", "content": "Who wrote it?"}
VOLATILE = {"call_id", "call_index", "segment", "fork_reason", "latency_s", "started_at", "session_id"}


@pytest.fixture
async def stack(engine_url, engine_model, tmp_path):
    """A gateway before the real engine: (client, model name, OpenAI client)."""
    gateway = Gateway(Settings(engine=engine_url, home=tmp_path, model=engine_model, call_deadline_s=120))
    async with (
        serving(gateway.app()) as url,
        GatewayClient(url, gateway.operator_key) as client,
        AsyncOpenAI(base_url=client.openai_base_url, api_key="none", max_retries=0, timeout=120) as sdk,
    ):
        yield client, engine_model, sdk


async def rows_of(client, session):
    return await client.calls(session.session_id, episode_id="e", attempt_id="a")


def assert_chained(rows):
    for earlier, later in pairwise(rows):
        known = earlier.prompt_token_ids + earlier.completion_token_ids
        assert later.prompt_token_ids[: len(known)] == known
        assert (later.parent_call_id, later.segment, later.fork_reason) == (earlier.call_id, 0, None)


async def test_streamed_and_unstreamed_record_equal_rows(stack, tools):
    client, model, sdk = stack
    session = await client.start_session("t")
    wanted = {"model": model, "messages": [SYSTEM, USER], "tools": tools, "max_tokens": 40, "seed": 5}
    whole = await sdk.with_options(api_key=session.api_key).chat.completions.create(**wanted)
    stream = await sdk.with_options(api_key=session.api_key).chat.completions.create(**wanted, stream=True)
    content = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    one, two = await rows_of(client, session)
    assert one.model_dump(exclude=VOLATILE) == two.model_dump(exclude=VOLATILE)
    assert content == whole.choices[0].message.content
    assert one.token_status == "exact"
    assert 0 < len(one.completion_token_ids) <= 40
    assert all(value < 0 for value in one.logprobs)


@pytest.mark.parametrize("stream", [False, True])
async def test_turns_chain_as_true_prefixes(stack, tools, stream):
    client, model, sdk = stack
    session = await client.start_session("t")
    messages = [SYSTEM, USER]
    for turn in range(4):
        answer = await sdk.with_options(api_key=session.api_key).chat.completions.create(
            model=model, messages=messages, tools=tools, max_tokens=24, seed=turn, stream=stream
        )
        if stream:
            content = "".join([chunk.choices[0].delta.content or "" async for chunk in answer])
            said = {"role": "assistant", "content": content}
        else:
            said = answer.choices[0].message.model_dump()
        messages += [said, {"role": "user", "content": f"And then, {turn}?"}]
    assert_chained(await rows_of(client, session))


async def test_demonstrations_chain_and_read_back_as_the_tool_calls_they_were(stack, tools, engine_url):
    client, model, sdk = stack
    session = await client.start_session("t", mode="demonstration")
    messages = [SYSTEM, USER]
    for turn in range(3):
        call = {
            "id": f"c{turn}",
            "type": "function",
            "function": {"name": "search", "arguments": f'{{"query": "é {turn}"}}'},
        }
        await sdk.with_options(api_key=session.api_key).chat.completions.create(
            model=model,
            messages=messages,
            tools=tools,
            extra_body={"demonstration": {"role": "assistant", "content": None, "tool_calls": [call]}},
        )
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "nothing", "tool_call_id": f"c{turn}"},
        ]
    rows = await rows_of(client, session)
    assert_chained(rows)
    assert all(set(row.weight_versions) == {-1} and row.token_status == "exact" for row in rows)
    async with httpx.AsyncClient(base_url=engine_url) as engine:
        for row in rows:
            body = {
                "model": model,
                "generate_response": {"choices": [{"index": 0, "token_ids": row.completion_token_ids[:-1]}]},
                "chat_request": {"model": model, "messages": [USER], "tools": tools},
            }
            message = (await engine.post("/v1/chat/completions/derender", json=body)).json()["choices"][0]["message"]
            wanted = json.loads(row.response_message)["tool_calls"][0]["function"]
            assert message["tool_calls"][0]["function"]["name"] == wanted["name"]
            assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == json.loads(wanted["arguments"])


@pytest.mark.parametrize(("words", "counted"), [(9000, "tokens"), (90_000, "characters")])
async def test_a_prompt_too_long_for_the_engine_is_a_400_with_both_lengths(stack, words, counted):
    client, model, sdk = stack
    session = await client.start_session("t")
    with pytest.raises(BadRequestError) as failure:
        await sdk.with_options(api_key=session.api_key).chat.completions.create(
            model=model, messages=[{"role": "user", "content": "word " * words}]
        )
    assert failure.value.code == "context_length_exceeded"
    limit, length = map(int, re.findall(r"\d+", failure.value.body["message"])[:2])
    assert counted in failure.value.body["message"]
    assert limit < 9000 <= words <= length


async def test_stop_strings_and_log_probs_reach_the_client_as_from_the_engine_itself(stack, engine_url):
    client, model, sdk = stack
    session = await client.start_session("t")
    wanted = {"model": model, "messages": [USER], "max_tokens": 60, "seed": 11, "stop": ["e"], "logprobs": True}
    ours = (await sdk.with_options(api_key=session.api_key).chat.completions.create(**wanted)).choices[0]
    async with AsyncOpenAI(base_url=f"{engine_url}/v1", api_key="none", timeout=120) as direct:
        theirs = (await direct.chat.completions.create(**wanted)).choices[0]
    assert (ours.message.content, ours.finish_reason) == (theirs.message.content, theirs.finish_reason)
    assert [one.token for one in ours.logprobs.content] == [one.token for one in theirs.logprobs.content]
