"""An answer with nothing to parse comes with its text, and is not derendered; every other one is."""

import pytest
from starlette.responses import JSONResponse

from sandboxes.gateway.scripted.engine import Scripted

USER = {"role": "user", "content": "hi"}
SAID = "naïve ☕ <tool_call> is a word here\n"


def watched(stack, monkeypatch):
    """The paths asked of the engine from now on."""
    asked = []
    [member] = stack.gateway.engines.members
    for pool in (member.engine._text, member.engine._tokens):
        post, lines = pool.post, pool.lines
        monkeypatch.setattr(pool, "post", lambda path, *a, post=post, **k: (asked.append(path), post(path, *a, **k))[1])
        monkeypatch.setattr(pool, "lines", lambda path, *a, lines=lines: (asked.append(path), lines(path, *a))[1])
    return asked


async def told(stack, session, **wanted):
    """What a client is told of one call."""
    create = stack.openai(session).chat.completions.create
    answer = await create(model=stack.model, messages=[USER], **wanted)
    if not wanted.get("stream"):
        return answer.choices[0].message.content
    chunks = [chunk async for chunk in answer]
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_plain_answer_takes_two_requests_streamed_or_not(start, monkeypatch, stream):
    async with start([SAID], token_delay_s=0.01) as stack:
        session = await stack.client.start_session("t")
        await told(stack, session)
        asked = watched(stack, monkeypatch)
        assert await told(stack, session, stream=stream) == SAID
        assert [path for path in asked if path != "/weight_info"] == [
            "/v1/chat/completions/render",
            "/inference/v1/generate",
        ]
        assert stack.engine.asked[-1]["sampling_params"].get("detokenize", True)


@pytest.mark.parametrize("wanted", [{"tools": True}, {"logprobs": True}])
async def test_what_is_to_be_parsed_or_told_apart_is_derendered_and_not_read_twice(start, monkeypatch, tools, wanted):
    async with start(["abc"]) as stack:
        session = await stack.client.start_session("t")
        await told(stack, session)
        asked = watched(stack, monkeypatch)
        assert await told(stack, session, **({"tools": tools} if "tools" in wanted else wanted)) == "abc"
        assert "/v1/chat/completions/derender" in asked
        generation = stack.engine.asked[-1]
        assert "output_mode" not in generation
        assert generation["sampling_params"]["detokenize"] is False


async def test_stop_strings_need_the_engine_to_read_along(start, tools):
    async with start(["one two three"]) as stack:
        session = await stack.client.start_session("t")
        for more in ({}, {"tools": tools}):
            assert await told(stack, session, stop=["two"], **more) == "one "
            assert (
                "output_mode" not in stack.engine.asked[-1]
            )  # special tokens are in no text that they are looked for in
            assert stack.engine.asked[-1]["sampling_params"].get("detokenize", True)


async def test_an_engine_whose_parser_takes_text_away_is_asked_for_every_message(start, monkeypatch):
    async def trimmed(self, request):
        body = await request.json()
        if not body:  # asked only whether the route is there
            return JSONResponse({}, status_code=400)
        ids = body["generate_response"]["choices"][0]["token_ids"]
        message = {"role": "assistant", "content": bytes(one for one in ids if one < 256).decode()}
        return JSONResponse({"choices": [{"index": 0, "message": message, "logprobs": None}]})

    monkeypatch.setattr(Scripted, "derender", trimmed)
    async with start(["a<|im_start|>b"]) as stack:
        session = await stack.client.start_session("t")
        assert await told(stack, session) == "ab"
        assert "output_mode" not in stack.engine.asked[-1]


async def test_an_engine_whose_parser_fails_when_it_is_tried_is_asked_all_the_same(start, monkeypatch):
    async def failing(self, request):
        return JSONResponse({"error": {"message": "it failed"}}, status_code=500 if await request.json() else 400)

    monkeypatch.setattr(Scripted, "derender", failing)
    async with start(["abc"]) as stack:
        session = await stack.client.start_session("t")
        assert await told(stack, session) == "abc"


async def test_an_engine_that_tells_no_text_is_asked_for_the_message(start, monkeypatch):
    generated = Scripted._generated

    async def older(self, request, body, *rest):
        return await generated(self, request, {**body, "output_mode": "tokens"}, *rest)

    monkeypatch.setattr(Scripted, "_generated", older)
    async with start([SAID]) as stack:
        session = await stack.client.start_session("t")
        for stream in (False, True):
            asked = watched(stack, monkeypatch)
            assert await told(stack, session, stream=stream) == SAID
            assert "/v1/chat/completions/derender" in asked


@pytest.mark.parametrize("token_routes", [True, False])
async def test_no_call_asks_for_log_probs_of_its_prompt(start, tools, token_routes):
    """They cost a pass over the whole prompt, past the prefix cache, at every turn."""
    async with start(["abc"], token_routes=token_routes) as stack:
        session = await stack.client.start_session("t")
        for stream in (False, True):
            for more in ({}, {"logprobs": True, "top_logprobs": 2}, {"tools": tools}, {"n": 2}):
                await told(stack, session, stream=stream, **more)
        if token_routes:
            await stack.openai(session).completions.create(model=stack.model, prompt="a", logprobs=1)
        assert len(stack.engine.asked) >= 10
        for body in stack.engine.asked:
            assert {**body, **body.get("sampling_params", {})}.get("prompt_logprobs") is None
