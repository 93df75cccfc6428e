"""The dialects on a real vLLM engine: forced tool calls, whose sampled ids are seldom those of their text, go back and forth."""

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings

pytestmark = pytest.mark.engine

SYSTEM = "You look things up."
# A small grammar that is held to (`strict`), so that even weights that know nothing make a call and end it.
SCHEMA = {
    "type": "object",
    "properties": {"query": {"enum": ["the lake", "é, the cake"]}, "depth": {"enum": [1, 2]}},
    "required": ["query", "depth"],
    "additionalProperties": False,
}
CHAT_TOOL = {
    "type": "function",
    "function": {"name": "search", "description": "d", "parameters": SCHEMA, "strict": True},
}
TURNS, MAX_TOKENS = 3, 150
GO_ON = {"role": "user", "content": "Go on."}  # where a call was cut off: the grammar lets it have any number of spaces


@dataclass
class Stack:
    client: GatewayClient
    model: str
    url: str
    key: str
    session_id: str

    @asynccontextmanager
    async def openai(self):
        async with AsyncOpenAI(base_url=f"{self.url}/v1", api_key=self.key, max_retries=0, timeout=120) as sdk:
            yield sdk

    @asynccontextmanager
    async def anthropic(self):
        async with AsyncAnthropic(base_url=self.url, api_key=self.key, max_retries=0, timeout=120) as sdk:
            yield sdk

    async def rows(self):
        return await self.client.calls(self.session_id, episode_id="e", attempt_id="a")


@pytest.fixture
async def stack(engine_url, engine_model, tmp_path):
    """A gateway before the real engine, and one session of it."""
    gateway = Gateway(Settings(engine=engine_url, home=tmp_path, model=engine_model, call_deadline_s=120))
    async with serving(gateway.app()) as url, GatewayClient(url, gateway.operator_key) as client:
        session = await client.start_session("t")
        yield Stack(client, engine_model, url, session.api_key, session.session_id)


async def streamed_chat(stream):
    """The message that the deltas add up to."""
    said, calls = {"role": "assistant", "content": ""}, {}
    async for chunk in stream:
        for choice in chunk.choices:
            said["content"] += choice.delta.content or ""
            for delta in choice.delta.tool_calls or []:
                function = calls.setdefault(delta.index, {"id": delta.id, "name": "", "arguments": ""})
                function["name"] += delta.function.name or ""
                function["arguments"] += delta.function.arguments or ""
    if calls:
        said["tool_calls"] = [
            {"id": call.pop("id"), "type": "function", "function": call} for _, call in sorted(calls.items())
        ]
    return said


async def talk_chat(stack, *, stream):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Where?"}]
    async with stack.openai() as sdk:
        for _ in range(TURNS):
            wanted = {"model": stack.model, "messages": messages, "tools": [CHAT_TOOL], "max_tokens": MAX_TOKENS}
            answer = await sdk.chat.completions.create(**wanted, tool_choice="required", stream=stream)
            said = await streamed_chat(answer) if stream else answer.choices[0].message.model_dump(exclude_none=True)
            calls = said.get("tool_calls") or []
            results = [{"role": "tool", "tool_call_id": call["id"], "content": "none"} for call in calls]
            messages += [said, *(results or [GO_ON])]


async def talk_responses(stack, *, stream, previous=False):
    tool = {"type": "function", **CHAT_TOOL["function"]}
    items, last = [{"role": "user", "content": "Where?"}], None
    async with stack.openai() as sdk:
        for _ in range(TURNS):
            wanted = {"model": stack.model, "input": items, "tools": [tool], "max_output_tokens": MAX_TOKENS}
            wanted |= {"instructions": SYSTEM, "tool_choice": "required"}
            wanted |= {"previous_response_id": last} if previous and last else {}
            said = await sdk.responses.create(**wanted, stream=stream)
            if stream:
                said = [event async for event in said][-1].response
            calls = [item for item in said.output if item.type == "function_call"]
            outputs = [{"type": "function_call_output", "call_id": call.call_id, "output": "none"} for call in calls]
            last, outputs = said.id, outputs or [GO_ON]
            items = outputs if previous else items + [item.model_dump() for item in said.output] + outputs


async def talk_messages(stack, *, stream):
    tool = {"name": "search", "description": "d", "input_schema": SCHEMA, "strict": True}
    messages = [{"role": "user", "content": "Where?"}]
    async with stack.anthropic() as sdk:
        for _ in range(TURNS):
            wanted = {"model": stack.model, "system": SYSTEM, "messages": messages, "tools": [tool]}
            wanted |= {"tool_choice": {"type": "any"}}
            counted = await sdk.messages.count_tokens(**wanted)
            if stream:
                async with sdk.messages.stream(**wanted, max_tokens=MAX_TOKENS) as events:
                    said = await events.get_final_message()
            else:
                said = await sdk.messages.create(**wanted, max_tokens=MAX_TOKENS)
            assert said.usage.input_tokens == counted.input_tokens
            uses = [block for block in said.content if block.type == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": use.id, "content": "none"} for use in uses]
            messages += [said.to_param(), {"role": "user", "content": results} if results else GO_ON]


TALKS = {
    "chat": talk_chat,
    "responses": talk_responses,
    "previous_response": lambda stack, stream: talk_responses(stack, stream=stream, previous=True),
    "messages": talk_messages,
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", TALKS)
async def test_a_tool_conversation_is_one_segment_of_true_prefixes(stack, dialect, stream):
    await TALKS[dialect](stack, stream=stream)
    rows = await stack.rows()
    assert len(rows) == TURNS
    for earlier, later in pairwise(rows):
        known = earlier.prompt_token_ids + earlier.completion_token_ids
        assert later.prompt_token_ids[: len(known)] == known
        assert (later.parent_call_id, later.segment, later.fork_reason) == (earlier.call_id, 0, None)
    for row in rows:
        assert row.token_status == "exact"
        for call in json.loads(row.response_message).get("tool_calls") or []:
            assert json.loads(call["function"]["arguments"])["query"] in SCHEMA["properties"]["query"]["enum"]


async def test_one_question_in_three_dialects_has_the_same_prompt_and_the_same_answer(stack):
    said = {"model": stack.model, "temperature": 0}
    async with stack.openai() as sdk, stack.anthropic() as claude:
        turns = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Who wrote it?"}]
        await sdk.chat.completions.create(**said, messages=turns, tools=[CHAT_TOOL], max_tokens=30)
        tool = {"type": "function", **CHAT_TOOL["function"]}
        await sdk.responses.create(
            **said, instructions=SYSTEM, input="Who wrote it?", tools=[tool], max_output_tokens=30
        )
        await claude.messages.create(
            model=stack.model,
            extra_body={"temperature": 0},
            system=SYSTEM,
            messages=turns[1:],
            tools=[{"name": "search", "description": "d", "input_schema": SCHEMA, "strict": True}],
            max_tokens=30,
        )
    chat, responses, messages = await stack.rows()
    assert chat.prompt_token_ids == responses.prompt_token_ids == messages.prompt_token_ids
    assert chat.completion_token_ids == responses.completion_token_ids == messages.completion_token_ids
    assert json.loads(chat.sampling) == json.loads(responses.sampling) == json.loads(messages.sampling)


async def test_a_raw_prompt_is_completed_as_by_the_engine_itself(stack, engine_url):
    wanted = {"model": stack.model, "prompt": "Once upon a time, é", "max_tokens": 24, "temperature": 0, "logprobs": 1}
    async with stack.openai() as sdk, AsyncOpenAI(base_url=f"{engine_url}/v1", api_key="none", timeout=120) as direct:
        ours = (await sdk.completions.create(**wanted)).choices[0]
        theirs = (await direct.completions.create(**wanted)).choices[0]
        parts = [part async for part in await sdk.completions.create(**wanted, stream=True)]
        [row, _] = await stack.rows()
        by_ids = await sdk.completions.create(**{**wanted, "prompt": row.prompt_token_ids})
    assert (ours.text, ours.finish_reason) == (theirs.text, theirs.finish_reason)
    assert ours.logprobs.tokens == theirs.logprobs.tokens
    assert ours.logprobs.token_logprobs == pytest.approx(theirs.logprobs.token_logprobs, abs=1e-3)
    assert "".join(part.choices[0].text for part in parts) == ours.text
    assert by_ids.choices[0].text == ours.text
    assert row.token_status == "exact"


async def test_text_that_goes_on_from_a_raw_call_keeps_its_ids(stack):
    prompt = "Once upon a time"
    async with stack.openai() as sdk:
        for seed in range(3):
            answer = await sdk.completions.create(
                model=stack.model, prompt=prompt, max_tokens=16, seed=seed, extra_body={"top_k": 50}
            )
            prompt += answer.choices[0].text + " and then"
    rows = await stack.rows()
    for earlier, later in pairwise(rows):
        known = earlier.prompt_token_ids + earlier.completion_token_ids
        if earlier.finish_reason == "length":
            assert later.prompt_token_ids[: len(known)] == known
            assert later.parent_call_id == earlier.call_id
