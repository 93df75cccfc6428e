"""Chains and branches of responses by `previous_response_id`, through OpenAI's own SDK."""

import json

import openai
import pytest

from tests.sandboxes.gateway.dialects.test_responses import FUNCTION, outputs


async def test_a_chain_of_fifty_over_a_restart_is_one_segment(start, one_segment):
    previous, session = None, None
    for begin, end in ((0, 25), (25, 50)):
        async with start([f"answer {n}" for n in range(50)], merge=True) as stack:
            session = session or await stack.client.start_session("t")
            for n in range(begin, end):
                more = {} if previous is None else {"previous_response_id": previous.id}
                previous = await stack.openai(session).responses.create(model=stack.model, input=f"turn {n}", **more)
                assert previous.output_text == f"answer {n}"
            rows = await stack.rows(session)
    one_segment(rows, 50)
    assert len(json.loads(rows[-1].request_messages)) == 99


async def test_branches_of_one_response_are_forks_of_its_call(start):
    async with start(["root", "leaf"], merge=True) as stack:
        session = await stack.client.start_session("t")
        client = stack.openai(session)
        root = await client.responses.create(model=stack.model, input="a")
        for text in ("b", "c", "d"):
            leaf = await client.responses.create(model=stack.model, input=text, previous_response_id=root.id)
            assert (leaf.previous_response_id, leaf.output_text) == (root.id, "leaf")
        rows = await stack.rows(session)
        assert [row.parent_call_id for row in rows] == [None] + 3 * [root.id]
        assert len({row.segment for row in rows}) == 3
        for row in rows[1:]:
            assert row.prompt_token_ids[: len(rows[0].prompt_token_ids)] == rows[0].prompt_token_ids


async def test_a_chain_with_reasoning_and_tools_is_one_segment_streamed_or_not(start, searching, one_segment):
    async with start([{**searching, "reasoning": "hm"}, {"content": "done", "reasoning": "ah"}], think=True) as stack:
        for stream in (False, True):
            session = await stack.client.start_session("t")
            client, previous, new = stack.openai(session), {}, "look"
            for _ in range(3):
                wanted = {"model": stack.model, "input": new, "tools": [FUNCTION], **previous}
                if stream:
                    async with client.responses.stream(**wanted) as events:
                        answer = await events.get_final_response()
                else:
                    answer = await client.responses.create(**wanted)
                assert answer.output[0].type == "reasoning"
                previous, new = {"previous_response_id": answer.id}, outputs(answer) or "go on"
            rows = await stack.rows(session)
            assert [row.status for row in rows] == ["ok"] * 3
            assert [row.token_status for row in rows] == ["exact"] * 3


async def test_what_a_client_sends_beside_a_previous_response_changes_nothing_that_is_recorded(start, searching):
    async with start([searching, "done"], merge=True) as stack:
        session = await stack.client.start_session("t")
        client = stack.openai(session)
        one = await client.responses.create(model=stack.model, input="look", tools=[FUNCTION])
        before = await stack.rows(session)
        calls = [item.model_dump(exclude_none=True) for item in one.output if item.type == "function_call"]
        wanted = {"model": stack.model, "previous_response_id": one.id, "tools": [FUNCTION]}
        with pytest.raises(openai.BadRequestError, match="is there already"):
            await client.responses.create(**wanted, input=calls + outputs(one))
        with pytest.raises(openai.BadRequestError, match="is there already"):
            await client.responses.create(model=stack.model, tools=[FUNCTION], input=[*calls, *calls, *outputs(one)])
        assert await stack.rows(session) == before
        assert (await client.responses.retrieve(one.id)).model_dump() == one.model_dump()
        two = await client.responses.create(**wanted, input=outputs(one))
        assert two.output_text == "done"
        assert (await stack.rows(session))[1].parent_call_id == one.id


async def test_a_call_that_failed_or_had_another_dialect_is_no_previous_response(start):
    async with start(["word " * 60], token_delay_s=0.002) as stack:
        stack.engine.failures.append("broken")
        client = stack.openai(await stack.client.start_session("t"))
        broken = [one async for one in await client.responses.create(model=stack.model, input="hi", stream=True)]
        chat = await client.chat.completions.create(model=stack.model, messages=[{"role": "user", "content": "a"}])
        for response_id in (broken[0].response.id, chat.id):
            with pytest.raises(openai.NotFoundError):
                await client.responses.create(model=stack.model, input="b", previous_response_id=response_id)
