"""Rewards are appended rows, per call or per episode, until the session is sealed."""

import pytest

from sandboxes.gateway.client import GatewayClient, GatewayRefused
from sandboxes.gateway.sessions.schema import RewardRow

USER = {"role": "user", "content": "hi"}


async def call(stack, session, *messages):
    answer = await stack.openai(session).chat.completions.create(model=stack.model, messages=list(messages) or [USER])
    return answer.id


async def test_every_reward_is_kept_with_who_gave_it_and_why_and_the_newest_counts(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        one = await call(stack, session)
        await stack.client.end_session(session)
        await stack.client.set_reward(session, 0.0, labeller="unit tests", reason="2 of 3 failed")
        await stack.client.set_reward(session, 1.0, interaction_id=one, labeller="ada", reason="the tests were wrong")
        await stack.client.set_reward(session, 0.5, scope="episode")
        rows = await stack.client.rewards(session.session_id)
        assert [(row["scope"], row["interaction_id"], row["reward"]) for row in rows] == [
            ("call", one, 0.0),
            ("call", one, 1.0),
            ("episode", None, 0.5),
        ]
        assert [(row["labeller"], row["reason"]) for row in rows][1:] == [("ada", "the tests were wrong"), ("", "")]
        assert all(row["given_at"] for row in rows)
        assert (await stack.client.export(session.session_id))[one]["rewards"] == 1.5
        await stack.client.set_reward(session, 0.25, scope="episode")
        assert (await stack.client.export(session.session_id))[one]["rewards"] == 1.25


async def test_an_episode_without_an_answered_call_can_be_rewarded_and_a_call_cannot(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        await stack.client.set_reward(session, 0.0, scope="episode", reason="gave up at once")
        with pytest.raises(GatewayRefused, match="no answered call"):
            await stack.client.set_reward(session, 0.0)
        assert await stack.client.export(session.session_id) == {}


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"reward": 1, "scope": "episode", "interaction_id": "x"}, "interaction_id"),
        ({"reward": 1, "scope": "turn"}, "scope"),
        ({"reward": 1, "labeler": "ada"}, "labeler"),
        ({"reward": 1e308}, "reward"),
        ({"reward": -1e10}, "reward"),
    ],
)
async def test_a_reward_that_makes_no_sense_is_a_400_that_names_what(start, body, named):
    async with start() as stack:
        session = await stack.client.start_session("t")
        await call(stack, session)
        answer = await stack.post("/rl/set_reward", session.reward_key, body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, named)
        assert await stack.client.rewards(session.session_id) == []


async def test_rewards_as_large_as_they_may_be_add_up_and_older_ones_that_do_not_are_told(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        one = await call(stack, session)
        for more in ({"interaction_id": one}, {"scope": "episode"}):
            await stack.client.set_reward(session, 1e9, **more)
        assert (await stack.client.export(session.session_id))[one]["rewards"] == 2e9
        held = await stack.gateway.sessions.by_id(session.session_id)
        older = {"labeller": "", "reason": "", "given_at": "2025-01-01T00:00:00+00:00"}  # when there was no limit
        for scope, call_id in (("call", one), ("episode", None)):
            row = RewardRow(scope=scope, call_id=call_id, reward=1.7e308, **older)
            await stack.gateway.sessions.reward(held, row)
        with pytest.raises(GatewayRefused, match=r"409.*add up to inf"):
            await stack.client.export(session.session_id)


async def test_areals_clients_may_reward_with_the_session_key_only_where_the_operator_allows_it(start):
    async with start(model_key_rewards=True) as stack:
        session = await stack.client.start_session("t")
        one = await call(stack, session)
        given = await stack.post("/rl/set_reward", session.api_key, {"interaction_id": None, "reward": 1.0})
        assert (given.status_code, given.json()) == (200, {"message": "success"})
        assert (await stack.client.export(session.session_id))[one]["rewards"] == 1.0


async def test_an_application_needs_no_operator_key_to_reward_and_end_its_session(start):
    async with start() as stack, GatewayClient(stack.url) as outside:
        session = await stack.client.start_session("t")
        await call(stack, session)
        await outside.set_reward(session, 1.0, scope="episode", labeller="customer")
        assert await outside.end_session(session) == 1
        with pytest.raises(GatewayRefused, match="operator key"):
            await outside.rewards(session.session_id)


async def test_rewards_survive_a_restart(start):
    async with start() as stack:
        session = await stack.client.start_session("t")
        one = await call(stack, session)
        await stack.client.set_reward(session, 1.0, scope="episode", labeller="ada")
    async with start() as stack:
        assert (await stack.client.export(session.session_id))[one]["rewards"] == 1.0
        [row] = await stack.client.rewards(session.session_id)
        assert row["labeller"] == "ada"
