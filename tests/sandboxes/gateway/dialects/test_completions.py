"""The Completions dialect, through OpenAI's own SDK: raw prompts."""

import json

import pytest


async def texts(stream):
    """Text per choice, finish reasons and usage of a stream."""
    said, finish, usage = {}, {}, None
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            said[choice.index] = said.get(choice.index, "") + choice.text
            finish[choice.index] = choice.finish_reason or finish.get(choice.index)
    return said, finish, usage


async def test_a_raw_prompt_is_sent_as_it_is_and_recorded_as_one(start):
    async with start(lambda prompt: prompt.upper()) as stack:
        session = await stack.client.start_session("t")
        answer = await stack.openai(session).completions.create(model=stack.model, prompt="once upon", max_tokens=50)
        assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("ONCE UPON", "stop")
        assert answer.usage.prompt_tokens == len("once upon")
        [row] = await stack.rows(session)
        assert (row.call_id, row.token_status) == (answer.id, "exact")
        assert bytes(row.prompt_token_ids) == b"once upon"
        assert json.loads(row.request_messages) == [{"role": "user", "name": "raw prompt", "content": "once upon"}]
        assert json.loads(row.response_message) == {"role": "assistant", "content": "ONCE UPON"}


async def test_token_ids_are_the_prompt_and_its_text_is_recorded(start):
    async with start(lambda prompt: prompt.upper()) as stack:
        session = await stack.client.start_session("t")
        ids = list("é cake".encode())
        answer = await stack.openai(session).completions.create(model=stack.model, prompt=ids, max_tokens=50)
        assert answer.choices[0].text == "É CAKE"
        [row] = await stack.rows(session)
        assert row.prompt_token_ids == ids
        assert json.loads(row.request_messages)[0]["content"] == "é cake"


@pytest.mark.parametrize("stream", [False, True])
async def test_several_prompts_and_choices_come_in_order(start, stream):
    async with start(lambda prompt: prompt.upper() * 9, token_delay_s=0.002) as stack:
        session = await stack.client.start_session("t")
        options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        answer = await stack.openai(session).completions.create(
            model=stack.model, prompt=["one ", "two "], n=2, max_tokens=50, **options
        )
        if stream:
            said, finish, usage = await texts(answer)
            assert set(finish.values()) == {"stop"}
        else:
            said, usage = {choice.index: choice.text for choice in answer.choices}, answer.usage
        assert said == {0: "ONE " * 9, 1: "ONE " * 9, 2: "TWO " * 9, 3: "TWO " * 9}
        assert (usage.prompt_tokens, usage.completion_tokens) == (8, 4 * 37)
        assert len(await stack.rows(session)) == 4


async def test_a_retry_finds_the_answer_of_every_prompt(start):
    async with start(lambda prompt: prompt.upper()) as stack:
        session = await stack.client.start_session("t")
        body = {"model": stack.model, "prompt": ["one", "two"], "max_tokens": 50}
        first = await stack.post("/v1/completions", session.api_key, body)
        again = await stack.post("/v1/completions", session.api_key, body, x_stainless_retry_count="1")
        assert again.json() == first.json()
        assert stack.engine.generated == 2


async def test_where_one_prompt_fails_none_is_answered(start):
    async with start(lambda prompt: prompt.upper()) as stack:
        session = await stack.client.start_session("t")
        stack.engine.failures.append("500")
        body = {"model": stack.model, "prompt": ["one", "two"], "max_tokens": 50}
        assert (await stack.post("/v1/completions", session.api_key, body)).status_code == 503
        assert len(await stack.rows(session)) == 2


async def test_text_that_goes_on_from_a_recorded_call_keeps_its_ids(start):
    replies = {0: "I search the lake.\nObservation: none", 1: "answer: hello"}
    async with start(lambda prompt: replies[prompt.count("Observation:")], merge=True) as stack:
        session = await stack.client.start_session("t")
        client = stack.openai(session)
        prompt = "Question: the lake?\n"
        first = await client.completions.create(model=stack.model, prompt=prompt, max_tokens=50, stop=["Observation:"])
        prompt += first.choices[0].text + "Observation: the answer\n"
        second = await client.completions.create(model=stack.model, prompt=prompt, max_tokens=50)
        assert second.choices[0].text == "answer: hello"
        one, two = await stack.rows(session)
        known = one.prompt_token_ids + one.completion_token_ids
        assert two.prompt_token_ids[: len(known)] == known
        assert (two.parent_call_id, two.segment, two.fork_reason) == (one.call_id, 0, None)


async def test_log_probs_come_in_this_routes_form_streamed_or_not(start):
    async with start(["abc"]) as stack:
        client = stack.openai(await stack.client.start_session("t"))
        wanted = {"model": stack.model, "prompt": "x", "max_tokens": 50, "logprobs": 1}
        whole = (await client.completions.create(**wanted)).choices[0].logprobs
        assert (whole.tokens, whole.text_offset) == (["a", "b", "c"], [0, 1, 2])
        assert [top[token] for top, token in zip(whole.top_logprobs, whole.tokens, strict=True)] == whole.token_logprobs
        stream = [one async for one in await client.completions.create(**wanted, stream=True)]
        parts = [one.choices[0].logprobs for one in stream if one.choices and one.choices[0].logprobs]
        assert [token for part in parts for token in part.tokens] == whole.tokens
        assert [offset for part in parts for offset in part.text_offset] == whole.text_offset


async def test_a_stop_string_ends_the_text_but_stays_in_the_tokens(start):
    async with start(["one two STOP three"]) as stack:
        session = await stack.client.start_session("t")
        answer = await stack.openai(session).completions.create(
            model=stack.model, prompt="x", max_tokens=50, stop="STOP"
        )
        assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("one two ", "stop")
        [row] = await stack.rows(session)
        assert bytes(row.completion_token_ids) == b"one two STOP"


REFUSED = [
    ({"frobnicate": 1}, "frobnicate"),
    ({"echo": True}, "echo"),
    ({"suffix": "x"}, "suffix"),
    ({"best_of": 3}, "best_of"),
    ({"logit_bias": {"1": 2}}, "logit_bias"),
    ({"prompt": ""}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [[]]}, "prompt"),
    ({"prompt": [-1]}, "prompt"),
    ({"prompt": [1, 2**31]}, "prompt"),
    ({"prompt": [1.5]}, "prompt"),
    ({"prompt": None}, "prompt"),
    ({"prompt": ["a", 5]}, "prompt"),
    ({"prompt": ["a"] * 200}, "prompt"),
    ({"temperature": 9}, "temperature"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"n": 0}, "n"),
]


async def test_what_is_not_served_is_a_400_that_names_it(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        for extra, named in REFUSED:
            body = {"model": stack.model, "prompt": "hi", "max_tokens": 9, **extra}
            answer = await stack.post("/v1/completions", session.api_key, body)
            error = answer.json()["error"]
            assert (answer.status_code, named in f"{error['param']} {error['message']}") == (400, True), (extra, error)
        assert await stack.rows(session) == []
