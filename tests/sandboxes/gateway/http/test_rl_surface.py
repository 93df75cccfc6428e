"""The online-RL routes: shapes that clients written for AReaL rely on, and what is done better here."""

import asyncio
import json
import threading

import pytest
from starlette.responses import JSONResponse

from sandboxes.gateway.client import GatewayRefused
from sandboxes.gateway.sessions import export
from sandboxes.gateway.sessions.recorded import Recorded

USER = {"role": "user", "content": "hi"}


async def call(stack, session, messages, **more):
    """One call; gives its id and the conversation with the answer."""
    answer = await stack.openai(session).chat.completions.create(model=stack.model, messages=messages, **more)
    return answer.id, [*messages, answer.choices[0].message.model_dump(exclude_none=True)]


async def test_a_session_id_is_the_task_id_and_a_number(start):
    async with start() as stack:
        first = await stack.client.start_session("search/factbook/pe-0003")
        second = await stack.client.start_session("search/factbook/pe-0003")
        assert (first.session_id, second.session_id) == ("search/factbook/pe-0003-1", "search/factbook/pe-0003-2")
        assert await stack.rows(first) == []


async def test_a_session_that_ended_answers_409_with_the_reason_and_ending_again_changes_nothing(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        await call(stack, session, [USER])
        assert [await stack.client.end_session(session) for _ in range(2)] == [1, 1]
        answer = await stack.post("/v1/chat/completions", session.api_key, {"model": stack.model, "messages": [USER]})
        assert answer.status_code == 409
        assert "ended by its owner" in answer.json()["error"]["message"]
        assert answer.headers["x-should-retry"] == "false"


async def test_a_key_of_ones_own_is_refused_for_another_task_and_refreshed_for_the_same(start):
    async with start() as stack:
        operator = stack.gateway.operator_key
        wanted = {"task_id": "a", "api_key": "my-own-key-1234"}
        first = (await stack.post("/rl/start_session", operator, wanted)).json()
        assert first["api_key"] == "my-own-key-1234"
        taken = await stack.post("/rl/start_session", operator, {**wanted, "task_id": "b"})
        assert (taken.status_code, first["session_id"] in taken.text) == (409, True)
        again = (await stack.post("/rl/start_session", operator, wanted)).json()
        assert again["session_id"] != first["session_id"]
        answer = await stack.post("/v1/chat/completions", "my-own-key-1234", {"model": stack.model, "messages": [USER]})
        assert answer.status_code == 200
        assert len(await stack.client.export(again["session_id"])) == 1
        assert (await stack.client.export(first["session_id"])) == {}


async def test_starts_at_once_with_one_key_of_ones_own_leave_one_session_that_it_opens(start):
    async with start() as stack:
        operator, wanted = stack.gateway.operator_key, {"task_id": "a", "api_key": "my-own-key-1234"}
        first = (await stack.post("/rl/start_session", operator, wanted)).json()["session_id"]
        answers = await asyncio.gather(*(stack.post("/rl/start_session", operator, wanted) for _ in range(4)))
        started = [answer.json()["session_id"] for answer in answers if answer.status_code == 200]
        assert {answer.status_code for answer in answers} <= {200, 409} and started and first not in started
        closed = {one["session_id"] for one in await stack.client.closed_sessions()}
        open_now = [one for one in [first, *started] if one not in closed]
        assert len(open_now) == 1
        body = {"model": stack.model, "messages": [USER]}
        assert (await stack.post("/v1/chat/completions", "my-own-key-1234", body)).status_code == 200
        assert len(await stack.client.export(open_now[0])) == 1


async def test_the_operator_key_is_no_session_key(start):
    async with start() as stack:
        key = stack.gateway.operator_key
        assert (await stack.post("/rl/start_session", key, {"task_id": "t", "api_key": key})).status_code == 400


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"task_id": ""},
        {"task_id": "t", "api_key": ""},
        {"task_id": "t", "api_key": " " * 16},
        {"task_id": "t", "nope": 1},
    ],
)
async def test_a_start_that_makes_no_sense_is_a_400(start, body):
    async with start() as stack:
        assert (await stack.post("/rl/start_session", stack.gateway.operator_key, body)).status_code == 400


async def test_a_full_gateway_says_when_to_come_back_and_a_ticket_lets_one_more_in(start):
    async with start(max_sessions=1) as stack:
        first = await stack.client.start_session("t")
        full = await stack.post("/rl/start_session", stack.gateway.operator_key, {"task_id": "t"})
        assert (full.status_code, int(full.headers["retry-after"]) > 0) == (429, True)
        assert (await stack.post("/grant_capacity", stack.gateway.operator_key)).json() == {"capacity": 1}
        await stack.client.start_session("t")
        with pytest.raises(GatewayRefused, match="429"):
            await stack.client.start_session("t")
        await stack.client.end_session(first)


async def test_sessions_of_dead_workers_make_room(start):
    async with start(max_sessions=1, idle_session_s=0.05) as stack:
        first = await stack.client.start_session("t")
        await asyncio.sleep(0.1)
        await stack.client.start_session("t")
        answer = await stack.post("/v1/chat/completions", first.api_key, {"model": stack.model, "messages": [USER]})
        assert (answer.status_code, "idle" in answer.text) == (409, True)


async def test_ending_a_session_cancels_its_running_call(start):
    async with start(["x" * 300], token_delay_s=0.02) as stack:
        session = await stack.client.start_session("t")
        running = asyncio.create_task(
            stack.post("/v1/chat/completions", session.api_key, {"model": stack.model, "messages": [USER]})
        )
        await asyncio.sleep(0.2)
        await stack.client.end_session(session)
        assert (await running).status_code == 409
        assert [row.status for row in await stack.rows(session)] == ["cancelled"]


async def test_a_reward_goes_to_the_last_answered_call_or_the_one_named_also_after_the_end(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        first, _ = await call(stack, session, [USER])
        second, _ = await call(stack, session, [{"role": "user", "content": "other"}])
        await stack.client.end_session(session)
        await stack.client.set_reward(session, 0.25)
        await stack.client.set_reward(session, 9.0, interaction_id=first)
        await stack.client.set_reward(session, 1.0, interaction_id=first)  # a correction is a newer row
        rows = await stack.client.export(session.session_id)
        assert {name: row["rewards"] for name, row in rows.items()} == {first: 1.0, second: 0.25}
        assert len(await stack.gateway.journal.rewards(session.session_id)) == 3


@pytest.mark.parametrize("body", [{"reward": 1, "interaction_id": "chatcmpl-nope"}, {"reward": 1}, {"reward": "x"}, {}])
async def test_a_reward_for_nothing_is_a_400(start, body):
    async with start() as stack:
        session = await stack.client.start_session("t")
        assert (await stack.post("/rl/set_reward", session.reward_key, body)).status_code == 400


async def test_a_reward_that_is_no_number_is_a_400(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        await call(stack, session, [USER])
        headers = {"Authorization": f"Bearer {session.reward_key}"}
        for value in ("NaN", "Infinity", "1e999"):
            answer = await stack.http.post("/rl/set_reward", content=f'{{"reward": {value}}}', headers=headers)
            assert answer.status_code == 400


async def test_individual_rows_are_the_calls_and_export_repeats(start):
    async with start(["abc"]) as stack:
        session = await stack.client.start_session("t")
        name, _ = await call(stack, session, [USER])
        [recorded] = await stack.rows(session)
        first, again = [await stack.client.export(session.session_id) for _ in range(2)]
        assert first == again
        row, prompt = first[name], len(recorded.prompt_token_ids)
        assert row["input_ids"] == recorded.prompt_token_ids + recorded.completion_token_ids
        assert row["loss_mask"] == [0] * prompt + [1] * 4
        assert row["logprobs"] == [0.0] * prompt + recorded.logprobs
        assert row["versions"] == [-1] * prompt + [1] * 4
        assert row["turn_ids"] == [-1] * prompt + [0] * 4
        assert row["attention_mask"] == [1] * (prompt + 4)


async def test_concat_rows_are_the_leaves_with_every_turn_marked(start):
    async with start(["first", "second"]) as stack:
        session = await stack.client.start_session("t")
        _, messages = await call(stack, session, [USER])
        leaf, _ = await call(stack, session, [*messages, USER])
        branch, _ = await call(stack, session, [*messages, {"role": "user", "content": "or else"}])
        rows = await stack.client.export(session.session_id, style="concat")
        assert list(rows) == [leaf, branch]
        assert sum(rows[leaf]["loss_mask"]) == len("first") + 1 + len("second") + 1
        assert sorted(set(rows[leaf]["turn_ids"])) == [-1, 0, 1]
        one = (await stack.rows(session))[0]
        at = len(one.prompt_token_ids)
        assert rows[leaf]["logprobs"][at : at + 6] == one.logprobs


async def test_concat_rows_have_the_credit_of_every_turn(start):
    async with start(["first", "second", "third"]) as stack:
        session = await stack.client.start_session("t")
        names, messages = [], [USER]
        for _ in range(3):
            name, messages = await call(stack, session, messages)
            names.append(name)
            messages = [*messages, USER]
        await stack.client.set_reward(session, 1.0, interaction_id=names[0])
        await stack.client.set_reward(session, 0.5, interaction_id=names[2])
        single = await stack.client.export(session.session_id, discount=0.5)
        [row] = (await stack.client.export(session.session_id, discount=0.5, style="concat")).values()
        assert row["turn_rewards"] == [single[name]["rewards"] for name in names] == [1.125, 0.25, 0.5]
        assert [single[name]["turn_rewards"] for name in names] == [[1.125], [0.25], [0.5]]
        assert row["rewards"] == 0.5
        assert {turn for turn, loss in zip(row["turn_ids"], row["loss_mask"], strict=True) if loss} == {0, 1, 2}


@pytest.mark.parametrize("wanted", ["rows", "export"])
async def test_what_holds_a_whole_session_is_put_together_beside_the_event_loop(start, monkeypatch, wanted):
    """It takes up to a second, for which every stream of the process would wait."""
    where = []

    def noting(whole):
        return lambda *given, **named: where.append(threading.get_ident()) or whole(*given, **named)

    async with start() as stack:
        session = await stack.client.start_session("t")
        await call(stack, session, [USER])
        for owner, name in ((Recorded, "row"), (export, "trajectories"), (JSONResponse, "__init__")):
            monkeypatch.setattr(owner, name, noting(getattr(owner, name)))
        assert await (stack.rows(session) if wanted == "rows" else stack.client.export(session.session_id))
    assert len(where) == 2
    assert threading.get_ident() not in where


async def test_a_masked_session_exports_no_trainable_token(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        await call(stack, session, [USER])
        await stack.gateway.sessions.mask(await stack.gateway.sessions.by_id(session.session_id), "a test")
        [row] = (await stack.client.export(session.session_id)).values()
        assert sum(row["loss_mask"]) == 0


async def test_an_unknown_session_is_a_404(start):
    async with start() as stack:
        with pytest.raises(GatewayRefused, match="404"):
            await stack.client.export("nope-1")


async def test_health_needs_no_key_and_says_whether_the_engine_answers(start):
    async with start() as stack:
        health = await stack.client.health()
        assert (health["status"], health["engine"], health["model"]) == ("ok", "ok", "scripted")
        assert json.dumps(health).count(stack.gateway.operator_key) == 0


async def test_an_unknown_route_is_a_404_in_openais_form(start):
    async with start() as stack:
        answer = await stack.post("/v1/embeddings", "x", {})
        assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found_error")
