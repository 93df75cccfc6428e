"""Engines without token routes: chat completions with ids, recorded as exactly as what the engine told."""

import json
from itertools import pairwise

import pytest

from sandboxes.gateway.engines.engine import Engine
from sandboxes.gateway.errors import EngineTrouble
from sandboxes.gateway.scripted.engine import Scripted
from sandboxes.gateway.server.listen import serving

USER = {"role": "user", "content": "hi"}
MORE = {"role": "user", "content": "go on with the search"}
VOLATILE = {"call_id", "latency_s", "started_at", "session_id", "token_route", "response_message", "sampling"}


async def ask(stack, session, stream=False, **wanted):
    """The message and the finish reason as the client has them."""
    answer = await stack.openai(session).chat.completions.create(
        **{"model": stack.model, "messages": [USER], "stream": stream, **wanted}
    )
    if not stream:
        return answer.choices[0].message.model_dump(exclude_none=True), answer.choices[0].finish_reason
    content, calls, finish = "", {}, None
    async for chunk in answer:
        for choice in chunk.choices:
            content += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for call in choice.delta.tool_calls or []:
                calls.setdefault(call.index, []).append(call.function.arguments)
    return {"role": "assistant", "content": content, "arguments": calls}, finish


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("case", ["text", "tools", "stop", "length", "thinking"])
async def test_both_routes_leave_equal_rows(start, tools, searching, stream, case):
    said, wanted, options = "hello STOP there", {}, {}
    if case == "tools":
        said, wanted = searching, {"tools": tools}
    if case == "stop":
        wanted = {"stop": ["STOP"]}
    if case == "length":
        wanted = {"max_tokens": 7}
    if case == "thinking":
        said, options = {"role": "assistant", "content": "so", "reasoning": "hm"}, {"think": True}
    rows, told = [], []
    for token_routes in (True, False):
        async with start([said], token_routes=token_routes, **options) as stack:
            session = await stack.client.start_session("t")
            told.append(await ask(stack, session, stream, **wanted))
            rows += await stack.rows(session)
    assert [row.token_route for row in rows] == ["generate", "chat"]
    assert rows[0].token_status == "exact"
    assert rows[0].model_dump(exclude=VOLATILE) == rows[1].model_dump(exclude=VOLATILE)
    messages = [json.loads(row.response_message) for row in rows]
    for message in messages:
        for call in message.get("tool_calls", []):
            call["id"] = "any"
    assert messages[0] == messages[1]
    assert told[0][1] == told[1][1]
    assert told[0][0]["content"] == told[1][0]["content"]


async def test_a_forced_route_is_taken_where_the_engine_has_both(start):
    async with start(token_route="chat") as stack:
        session = await stack.client.start_session("t")
        await ask(stack, session)
        [row] = await stack.rows(session)
        assert (row.token_route, row.token_status) == ("chat", "exact")
        assert len(row.template_digest) == 64


async def test_the_engine_is_asked_for_ids_and_told_what_to_sample_with(start):
    async with start(token_routes=False, weight_version="3") as stack:
        session = await stack.client.start_session("t")
        await ask(stack, session, temperature=0.5, logprobs=True, top_logprobs=1)
        asked = stack.engine.asked[-1]
        assert (asked["return_token_ids"], asked["logprobs"], asked["top_logprobs"]) == (True, True, 1)
        assert (asked["temperature"], asked["top_p"], asked["top_k"]) == (0.5, 1.0, 0)  # no default of the engine's own
        assert asked["cache_salt"] == "weights-3"
        [row] = await stack.rows(session)
        assert json.loads(row.sampling)["temperature"] == 0.5


async def test_weights_that_change_while_a_call_runs_leave_its_version_unknown(start):
    async with start(["a long answer"], token_routes=False, token_delay_s=0.01) as stack:
        session = await stack.client.start_session("t")
        answer = await stack.openai(session).chat.completions.create(model=stack.model, messages=[USER], stream=True)
        async for _ in answer:
            stack.engine.weight_version = "2"
        [row] = await stack.rows(session)
        assert (row.status, row.token_status) == ("ok", "missing")


async def test_turns_continue_where_the_text_tokenises_as_sampled_and_else_say_retokenised(start):
    for merge, reasons in ((False, ["root", None, None]), (True, ["root", "retokenised", "retokenised"])):
        async with start(["hello the answer"], token_routes=False, merge=merge) as stack:
            session = await stack.client.start_session("t")
            messages = [USER]
            for _ in range(3):
                message, _ = await ask(stack, session, messages=messages)
                messages = [*messages, message, MORE]
            rows = await stack.rows(session)
            assert [row.fork_reason for row in rows] == reasons
            for earlier, later in pairwise(rows):
                known = earlier.prompt_token_ids + earlier.completion_token_ids
                assert (later.prompt_token_ids[: len(known)] == known) is not merge


async def test_several_choices_and_their_streams_work_too(start):
    said = iter(range(100))
    async with start(lambda prompt: f"reply {next(said)}", token_routes=False) as stack:
        session = await stack.client.start_session("t")
        answer = await stack.openai(session).chat.completions.create(model=stack.model, messages=[USER], n=3)
        assert len({choice.message.content for choice in answer.choices}) == 3
        assert [row.fork_reason for row in await stack.rows(session)] == ["root", "sibling", "sibling"]


async def test_an_engine_that_can_neither_is_told_so():
    engine = Scripted(["x"], token_routes=False)
    app = engine.app()
    app.router.routes = [route for route in app.router.routes if route.path != "/tokenize"]
    async with serving(app) as url:
        ours = Engine(url, "scripted", deadline_s=5)
        with pytest.raises(EngineTrouble, match=r"neither .*render.* nor /tokenize.*--enable-scale-out"):
            await ours.route()
        await ours.close()
