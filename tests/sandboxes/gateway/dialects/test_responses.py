"""The Responses dialect, through OpenAI's own SDK."""

import json
import time

import openai
import pytest
from pydantic import BaseModel

FUNCTION = {
    "type": "function",
    "name": "search",
    "description": "d",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
}


def outputs(response):
    """A function_call_output for each call of a response."""
    return [
        {"type": "function_call_output", "call_id": item.call_id, "output": f"found {n}"}
        for n, item in enumerate(response.output)
        if item.type == "function_call"
    ]


async def test_an_answer_has_openais_shape_and_the_calls_own_id(start):
    async with start(["hello there"]) as stack:
        session = await stack.client.start_session("t")
        answer = await stack.openai(session).responses.create(
            model=stack.model, input="hi", instructions="Be brief.", metadata={"a": "b"}, max_output_tokens=50
        )
        assert (answer.output_text, answer.status) == ("hello there", "completed")
        assert answer.usage.output_tokens == len("hello there") + 1
        assert (answer.instructions, answer.metadata, answer.max_output_tokens) == ("Be brief.", {"a": "b"}, 50)
        [row] = await stack.rows(session)
        assert row.call_id == answer.id
        assert [one["role"] for one in json.loads(row.request_messages)] == ["system", "user"]
        await stack.client.set_reward(session, 1.0, interaction_id=answer.id)


async def test_a_conversation_of_items_with_parallel_calls_is_one_segment(start, searching, one_segment):
    async with start([searching, searching, "done"], merge=True) as stack:
        session = await stack.client.start_session("t")
        client, items = stack.openai(session), [{"role": "user", "content": "look"}]
        for _ in range(3):
            answer = await client.responses.create(model=stack.model, input=items, tools=[FUNCTION])
            items += [item.model_dump() for item in answer.output] + outputs(answer)
        assert answer.output_text == "done"
        assert [item["type"] for item in items[1:6]] == ["message"] + 2 * ["function_call"] + 2 * [
            "function_call_output"
        ]
        one_segment(await stack.rows(session), 3)


async def test_reasoning_goes_back_in_the_open_where_a_client_asks_for_it_encrypted(start, one_segment):
    said = {"role": "assistant", "content": "hello", "reasoning": "a greeting"}
    async with start([said, "done"], think=True) as stack:
        session = await stack.client.start_session("t")
        client, items = stack.openai(session), [{"role": "user", "content": "hi"}]
        wanted = {"include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}, "store": False}
        for _ in range(2):
            answer = await client.responses.create(model=stack.model, input=items, **wanted)
            items += [item.model_dump(exclude_none=True) for item in answer.output]
        assert [item["type"] for item in items if "type" in item] == ["reasoning", "message", "message"]
        one_segment(await stack.rows(session), 2)


async def test_parallel_calls_put_one_by_one_before_their_outputs_are_still_one_turn(start, searching, one_segment):
    async with start([searching, "done"], merge=True) as stack:
        session = await stack.client.start_session("t")
        client, items = stack.openai(session), [{"role": "user", "content": "look"}]
        answer = await client.responses.create(model=stack.model, input=items, tools=[FUNCTION])
        text, *calls = [item.model_dump() for item in answer.output]
        mixed = [text] + [one for pair in zip(calls, outputs(answer), strict=True) for one in pair]
        await client.responses.create(model=stack.model, input=items + mixed, tools=[FUNCTION])
        rows = await stack.rows(session)
        one_segment(rows, 2)
        assert [one["role"] for one in json.loads(rows[1].request_messages)] == ["user", "assistant", "tool", "tool"]


async def test_a_previous_response_is_gone_on_from_token_by_token_also_after_a_restart(start, searching, one_segment):
    async with start([searching, "done", "more"], merge=True) as stack:
        session = await stack.client.start_session("t")
        one = await stack.openai(session).responses.create(
            model=stack.model, input="look", instructions="Look things up.", tools=[FUNCTION]
        )
    async with start([searching, "done", "more"], merge=True) as stack:
        client = stack.openai(session)
        two = await client.responses.create(
            model=stack.model,
            previous_response_id=one.id,
            input=outputs(one),
            instructions="Look things up.",
            tools=[FUNCTION],
        )
        assert two.previous_response_id == one.id
        three = await client.responses.create(
            model=stack.model,
            previous_response_id=two.id,
            input="go on",
            instructions="Look things up.",
            tools=[FUNCTION],
        )
        assert three.output_text == "more"
        one_segment(await stack.rows(session), 3)
        again = await client.responses.retrieve(two.id)
        assert again.model_dump() == two.model_dump()


async def test_instructions_are_not_carried_over(start):
    async with start(["one", "two"]) as stack:
        session = await stack.client.start_session("t")
        client = stack.openai(session)
        first = await client.responses.create(model=stack.model, input="a", instructions="First.")
        await client.responses.create(
            model=stack.model, input="b", previous_response_id=first.id, instructions="Second."
        )
        last = json.loads((await stack.rows(session))[1].request_messages)
        assert [(one["role"], one["content"]) for one in last] == [
            ("system", "Second."),
            ("user", "a"),
            ("assistant", "one"),
            ("user", "b"),
        ]


async def test_an_unknown_foreign_or_unstored_previous_response_is_a_404_with_its_code(start):
    async with start() as stack:
        session, other = await stack.client.start_session("t"), await stack.client.start_session("u")
        foreign = await stack.openai(other).responses.create(model=stack.model, input="a")
        unstored = await stack.openai(session).responses.create(model=stack.model, input="a", store=False)
        for response_id in ("resp_none", foreign.id, unstored.id):
            with pytest.raises(openai.NotFoundError) as failure:
                await stack.openai(session).responses.create(
                    model=stack.model, input="b", previous_response_id=response_id
                )
            assert failure.value.code == "previous_response_not_found"
            with pytest.raises(openai.NotFoundError):
                await stack.openai(session).responses.retrieve(response_id)


async def test_events_add_up_to_the_unstreamed_response(start, searching):
    async with start([searching], token_delay_s=0.002) as stack:
        client = stack.openai(await stack.client.start_session("t"))
        wanted = {"model": stack.model, "input": "look", "tools": [FUNCTION]}
        whole = await client.responses.create(**wanted)
        events = [one async for one in await client.responses.create(**wanted, stream=True)]
        assert [one.sequence_number for one in events] == list(range(len(events)))
        kinds = [one.type.removeprefix("response.") for one in events]
        squeezed = [kind for n, kind in enumerate(kinds) if n == 0 or kinds[n - 1] != kind]
        call = [
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
        ]
        assert squeezed == [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            *call,
            *call,
            "completed",
        ]
        async with client.responses.stream(**wanted) as stream:
            final = await stream.get_final_response()
        assert final.output_text == whole.output_text
        assert [item.arguments for item in final.output if item.type == "function_call"] == [
            item.arguments for item in whole.output if item.type == "function_call"
        ]
        assert final.usage == whole.usage


async def test_the_first_words_arrive_while_the_engine_still_generates(start):
    async with start(["word " * 40], token_delay_s=0.005) as stack:  # about a second
        client = stack.openai(await stack.client.start_session("t"))
        started, first = time.monotonic(), None
        async for one in await client.responses.create(model=stack.model, input="hi", stream=True):
            if first is None and one.type == "response.output_text.delta":
                first = time.monotonic() - started
                assert stack.engine.generated == 0
        assert first < (time.monotonic() - started) / 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_cut_answer_is_incomplete_and_says_why(start, stream):
    async with start(["a long answer"]) as stack:
        client = stack.openai(await stack.client.start_session("t"))
        answer = await client.responses.create(model=stack.model, input="hi", max_output_tokens=6, stream=stream)
        if stream:
            answer = [one async for one in answer][-1].response
        assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert answer.output_text == "a long"


async def test_an_engine_that_fails_on_the_way_fails_the_response(start):
    async with start(["word " * 60], token_delay_s=0.002) as stack:
        stack.engine.failures.append("broken")
        client = stack.openai(await stack.client.start_session("t"))
        last = [one async for one in await client.responses.create(model=stack.model, input="hi", stream=True)][-1]
        assert (last.type, last.response.status, last.response.error.code) == (
            "response.failed",
            "failed",
            "server_error",
        )


async def test_the_sdks_parse_helper_reads_structured_output(start):
    class Answer(BaseModel):
        city: str

    async with start(['{"city": "Tromsø"}']) as stack:
        client = stack.openai(await stack.client.start_session("t"))
        answer = await client.responses.parse(model=stack.model, input="where?", text_format=Answer)
        assert answer.output_parsed == Answer(city="Tromsø")


async def test_log_probs_come_where_they_are_included(start):
    async with start(["abc"]) as stack:
        client = stack.openai(await stack.client.start_session("t"))
        answer = await client.responses.create(
            model=stack.model, input="hi", include=["message.output_text.logprobs"], top_logprobs=0
        )
        assert [one.token for one in answer.output[0].content[0].logprobs] == ["a", "b", "c"]


REFUSED = [
    ({"frobnicate": 1}, "frobnicate"),
    ({"background": True}, "background"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"prompt": {"id": "p"}}, "prompt"),
    ({"max_tool_calls": 3}, "max_tool_calls"),
    ({"truncation": "auto"}, "truncation"),
    ({"include": ["file_search_call.results"]}, "include.0"),
    ({"tools": [{"type": "web_search"}]}, "web_search"),
    ({"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}, "code_interpreter"),
    ({"tools": [{**FUNCTION, "colour": 1}]}, "tools.0.colour"),
    ({"input": [{"type": "image_generation_call", "id": "i"}]}, "input.0.type"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input.0.content.0.type"),
    ({"input": [{"role": "user", "content": "x", "colour": 1}]}, "input.0.colour"),
    ({"input": [{"type": "item_reference", "id": "msg_none"}]}, "input.0.id"),
    ({"input": []}, "input"),
    ({"input": 5}, "input"),
    ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
    ({"text": {"verbosity": "low"}}, "text.verbosity"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"temperature": 9}, "temperature"),
    ({"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
]


async def test_what_is_not_served_is_a_400_that_names_it(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        for extra, named in REFUSED:
            body = {"model": stack.model, "input": "hi", **extra}
            answer = await stack.post("/v1/responses", session.api_key, body)
            error = answer.json()["error"]
            assert (answer.status_code, named in f"{error['param']} {error['message']}") == (400, True), (extra, error)
        assert await stack.rows(session) == []


async def test_an_item_may_be_referred_to_instead_of_repeated(start, one_segment):
    async with start(["one", "two"], merge=True) as stack:
        session = await stack.client.start_session("t")
        client = stack.openai(session)
        answer = await client.responses.create(model=stack.model, input="a")
        items = [
            {"role": "user", "content": "a"},
            {"type": "item_reference", "id": answer.output[0].id},
            {"role": "user", "content": "b"},
        ]
        await client.responses.create(model=stack.model, input=items)
        rows = await stack.rows(session)
        one_segment(rows, 2)
        said = [turn["role"] for turn in json.loads(rows[1].request_messages)]
        assert said == ["user", "assistant", "user"]
