"""On a real vLLM engine: both token routes record the same, streams are early and whole, grammars hold."""

import asyncio
import json
import time
from contextlib import asynccontextmanager
from itertools import pairwise

import httpx
import pytest
from openai import AsyncOpenAI

from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings

pytestmark = pytest.mark.engine

SYSTEM = {"role": "system", "content": "You look things up."}
USER = {"role": "user", "content": "Who wrote it?"}
UNICODE = "naïve café ☕ 日本語 👩‍🔬 Ω"


def schema(body):
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": body}}


@pytest.fixture
def gateway(engine_url, engine_model, tmp_path):
    """`async with gateway("chat") as (client, model, sdk)`: a gateway before the real engine, on that token route."""

    @asynccontextmanager
    async def running(route="auto"):
        settings = Settings(
            engine=engine_url, home=tmp_path / route, model=engine_model, call_deadline_s=120, token_route=route
        )
        made = Gateway(settings)
        async with (
            serving(made.app()) as url,
            GatewayClient(url, made.operator_key) as client,
            AsyncOpenAI(base_url=client.openai_base_url, api_key="none", max_retries=0, timeout=120) as sdk,
        ):
            yield client, engine_model, sdk

    return running


async def asked(client, sdk, **wanted):
    """One call of a session of its own: the answer (or the chunks of a stream) and the row."""
    session = await client.start_session("t")
    answer = await sdk.with_options(api_key=session.api_key).chat.completions.create(**wanted)
    if wanted.get("stream"):
        answer = [chunk async for chunk in answer]
    [row] = await client.calls(session.session_id, episode_id="e", attempt_id="a")
    return answer, row


def text_of(chunks):
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


CASES = {
    "plain": {"max_tokens": 30},
    "stop": {"stop": ["e"], "max_tokens": 40},
    "schema": {"response_format": schema({"enum": [UNICODE]})},
    "required": {"tool_choice": "required", "max_tokens": 40},
    "named": {"tool_choice": {"type": "function", "function": {"name": "search"}}, "max_tokens": 40},
    "log-probs": {"logprobs": True, "top_logprobs": 2, "max_tokens": 12},
}


@pytest.mark.parametrize("stream", [False, True])
async def test_both_routes_leave_equal_rows_and_the_row_says_which(gateway, tools, stream):
    shared = {"messages": [SYSTEM, USER], "tools": tools, "temperature": 0, "seed": 1, "stream": stream}

    async def through(route):
        async with gateway(route) as (client, model, sdk):
            calls = [asked(client, sdk, model=model, **{**shared, **case}) for case in CASES.values()]
            return dict(zip(CASES, await asyncio.gather(*calls), strict=True))

    ours, theirs = await through("generate"), await through("chat")
    for name in CASES:
        (first, generated), (second, chatted) = ours[name], theirs[name]
        assert (generated.token_route, chatted.token_route) == ("generate", "chat"), name
        for field in (
            "prompt_token_ids", "completion_token_ids", "weight_versions", "token_status", "status", "finish_reason",
            "template_digest", "engine_version", "request_messages",
        ):  # fmt: skip
            assert getattr(generated, field) == getattr(chatted, field), (name, field)
        assert generated.logprobs == pytest.approx(chatted.logprobs, abs=1e-4), name
        assert generated.token_status == "exact"
        said = [json.loads(row.response_message) for row in (generated, chatted)]
        assert said[0]["content"] == said[1]["content"], name
        called = [[call["function"]["name"] for call in message.get("tool_calls", [])] for message in said]
        assert called[0] == called[1], name
        if stream:
            assert text_of(first) == text_of(second), name


async def test_the_text_that_comes_with_the_ids_is_what_derender_makes_of_them(gateway, engine_url):
    """Hot samples hold special tokens, halves of characters and bytes that are none."""
    async with gateway() as (client, model, sdk), httpx.AsyncClient(base_url=engine_url, timeout=60) as engine:
        wanted = {"model": model, "messages": [SYSTEM, USER], "max_tokens": 48, "temperature": 1.8}
        found = await asyncio.gather(*(asked(client, sdk, **wanted, seed=n, stream=n % 4 == 3) for n in range(24)))
        for n, (answer, row) in enumerate(found):
            said = text_of(answer) if n % 4 == 3 else answer.choices[0].message.content
            assert said == json.loads(row.response_message)["content"]
            shown = row.completion_token_ids[: -1 if row.finish_reason == "stop" else None]
            body = {
                "model": model,
                "chat_request": {"model": model, "messages": [USER]},
                "prompt_token_ids": row.prompt_token_ids,
                "generate_response": {"choices": [{"index": 0, "finish_reason": "stop", "token_ids": shown}]},
            }
            if shown:
                told = (await engine.post("/v1/chat/completions/derender", json=body)).json()
                assert said == (told["choices"][0]["message"]["content"] or ""), n
        assert sum(len(row.completion_token_ids) for _, row in found) > 200


async def test_the_engine_has_all_routes_so_the_token_routes_are_taken(gateway):
    async with gateway() as (client, model, sdk):
        _, row = await asked(client, sdk, model=model, messages=[USER], max_tokens=4)
        assert row.token_route == "generate"


async def test_turns_on_the_chat_route_continue_or_say_retokenised(gateway):
    async with gateway("chat") as (client, model, sdk):
        session = await client.start_session("t")
        messages = [SYSTEM, USER]
        for turn in range(3):
            answer = await sdk.with_options(api_key=session.api_key).chat.completions.create(
                model=model, messages=messages, max_tokens=24, seed=turn
            )
            said = answer.choices[0].message.model_dump(exclude_none=True)
            messages += [said, {"role": "user", "content": f"And then, {turn}?"}]
        rows = await client.calls(session.session_id, episode_id="e", attempt_id="a")
        assert {row.token_status for row in rows} == {"exact"}
        for earlier, later in pairwise(rows):
            known = earlier.prompt_token_ids + earlier.completion_token_ids
            continued = later.prompt_token_ids[: len(known)] == known
            assert later.fork_reason == (None if continued else "retokenised")


@pytest.mark.parametrize("route", ["generate", "chat"])
async def test_the_first_token_reaches_the_client_while_the_engine_generates(gateway, engine_url, route):
    long = {"type": "string", "minLength": 9000}  # seconds of generation, up to the limit: also on a busy machine
    async with gateway(route) as (client, model, sdk), httpx.AsyncClient(base_url=engine_url) as engine:
        session, form = await client.start_session("t"), schema(long)
        other = await client.start_session("first")
        await sdk.with_options(api_key=other.api_key).chat.completions.create(
            model=model, messages=[USER], response_format=form, max_tokens=2
        )  # the engine compiles the form once
        for seed in range(3):  # a machine that stalls for seconds before the first token is no fault of the gateway's
            first, whole, running = await _streamed(sdk, session, model, form, seed, engine)
            assert running >= 1, "the engine had no running request when the first words came"
            if first < whole / 2:
                break
        *_, row = await client.calls(session.session_id, episode_id="e", attempt_id="a")
        assert len(row.completion_token_ids) > 60
        assert first < whole / 2, f"first words after {first:.2f} s of {whole:.2f} s, three times"


async def _streamed(sdk, session, model, form, seed, engine):
    """Seconds to the first words and to the end, and the requests that the engine had running at the first words."""
    began = time.monotonic()
    stream = await sdk.with_options(api_key=session.api_key).chat.completions.create(
        model=model, messages=[USER], stream=True, seed=seed, response_format=form, max_tokens=1500
    )
    first = running = None
    async for chunk in stream:
        if first is None and chunk.choices and chunk.choices[0].delta.content:
            first = time.monotonic() - began
            running = await _running(engine)
    return first, time.monotonic() - began, running


async def _running(engine):
    metrics = (await engine.get("/metrics")).text
    lines = [line for line in metrics.splitlines() if line.startswith("vllm:num_requests_running")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


@pytest.mark.parametrize("route", ["generate", "chat"])
async def test_characters_split_over_tokens_are_streamed_whole(gateway, route):
    async with gateway(route) as (client, model, sdk):
        wanted = {"model": model, "messages": [USER], "response_format": schema({"enum": [UNICODE * 3]}), "seed": 2}
        whole, row = await asked(client, sdk, **wanted)
        chunks, streamed = await asked(client, sdk, **wanted, stream=True)
        parts = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
        assert "".join(parts) == whole.choices[0].message.content == json.dumps(UNICODE * 3, ensure_ascii=False)
        assert not any("\ufffd" in part for part in parts)
        assert row.completion_token_ids == streamed.completion_token_ids
        assert len(row.completion_token_ids) > 1.5 * len(UNICODE * 3)  # characters really are split


async def test_a_turn_cut_within_a_character_does_not_fork(gateway):
    async with gateway("generate") as (client, model, sdk):
        session = await client.start_session("t")
        messages = [USER]
        for _ in range(3):
            answer = await sdk.with_options(api_key=session.api_key).chat.completions.create(
                model=model, messages=messages, response_format=schema({"enum": ["☕☕☕☕"]}), max_tokens=6
            )
            messages += [answer.choices[0].message.model_dump(exclude_none=True), USER]
        rows = await client.calls(session.session_id, episode_id="e", attempt_id="a")
        assert [row.fork_reason for row in rows] == ["root", None, None]
        assert "\ufffd" not in json.dumps(messages, ensure_ascii=False)


async def test_a_forced_tool_and_a_single_call_are_held_by_the_grammar(gateway, tools):
    async with gateway() as (client, model, sdk):
        strict = [{**tools[0], "function": {**tools[0]["function"], "strict": True, "parameters": LIMITED}}]
        named = {"type": "function", "function": {"name": "search"}}
        for choice in ("required", named):
            wanted = {"model": model, "messages": [USER], "tools": strict, "tool_choice": choice, "seed": 4}
            answer, row = await asked(client, sdk, **wanted, parallel_tool_calls=False, max_tokens=200)
            [call] = answer.choices[0].message.tool_calls
            assert call.function.name == "search"
            assert json.loads(call.function.arguments)["query"] in ("lake", "loop")
            assert (row.status, row.token_status, row.token_route) == ("ok", "exact", "generate")
            assert "structural_tag" in json.loads(row.sampling)["structured_outputs"]


LIMITED = {
    "type": "object",
    "properties": {"query": {"enum": ["lake", "loop"]}},
    "required": ["query"],
    "additionalProperties": False,
}


async def test_choices_differ_by_seed_and_are_the_ones_their_seeds_give(gateway):
    async with gateway() as (client, model, sdk):
        session = await client.start_session("t")
        mine = sdk.with_options(api_key=session.api_key)
        shared = {"model": model, "messages": [USER], "max_tokens": 16, "temperature": 1.5}
        answer = await mine.chat.completions.create(**shared, n=3, seed=5)
        alone = [await mine.chat.completions.create(**shared, seed=5 + n) for n in range(3)]
        rows = await client.calls(session.session_id, episode_id="e", attempt_id="a")
        assert [row.completion_token_ids for row in rows[:3]] == [row.completion_token_ids for row in rows[3:]]
        assert [one.message.content for one in answer.choices] == [one.choices[0].message.content for one in alone]
        assert [row.fork_reason for row in rows] == ["root", "sibling", "sibling", "retry", "retry", "retry"]


async def test_streamed_log_probs_are_the_unstreamed_ones(gateway):
    async with gateway() as (client, model, sdk):
        wanted = {"model": model, "messages": [USER], "response_format": schema({"enum": [UNICODE]})}
        wanted |= {"logprobs": True, "top_logprobs": 2, "seed": 2}
        whole, _ = await asked(client, sdk, **wanted)
        chunks, _ = await asked(client, sdk, **wanted, stream=True)
        streamed = [one.logprobs.content for chunk in chunks for one in chunk.choices if one.logprobs]
        expected = whole.choices[0].logprobs.content
        got = [entry for part in streamed for entry in part]
        assert [entry.token for entry in got] == [entry.token for entry in expected]
        assert [entry.logprob for entry in got] == pytest.approx([entry.logprob for entry in expected], abs=1e-4)
        assert {len(entry.top_logprobs) for entry in got} == {2}


async def test_the_prefix_cache_of_other_weights_is_not_used(gateway, engine_url, tmp_path):
    async with gateway() as (client, model, sdk), httpx.AsyncClient(base_url=engine_url, timeout=30) as engine:
        before = (await engine.get("/weight_info")).json()["weight_version"]
        key = {"Authorization": f"Bearer {(tmp_path / 'auto' / 'keys' / 'operator').read_text().strip()}"}
        prompt = [{"role": "user", "content": f"{time.monotonic_ns()} " + "the lake and the loop " * 60}]
        try:
            hits = []
            for label in (before, before, "987654", "987654"):
                for for_s in (60, 0):  # as a deployment does
                    order = {"url": engine_url, "for_s": for_s}
                    (await engine.post(f"{client.base_url}/engines/pause", json=order, headers=key)).raise_for_status()
                    await engine.post("/update_weight_version", json={"new_version": label})
                hit = await _hits(engine)
                await asked(client, sdk, model=model, messages=prompt, max_tokens=2)
                hits.append(await _hits(engine) - hit)
        finally:
            await engine.post("/update_weight_version", json={"new_version": before})
        assert hits[1] > 0, "the same weights use their prefix cache"
        assert hits[2] == 0, "other weights must not"
        assert hits[3] > 0


async def _hits(engine):
    metrics = (await engine.get("/metrics")).text
    lines = [line for line in metrics.splitlines() if line.startswith("vllm:prefix_cache_hits_total")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)
