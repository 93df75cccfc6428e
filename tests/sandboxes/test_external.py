"""What an application outside played becomes an episode: complete, honest about how it ended, and once."""

import json
from contextlib import asynccontextmanager

import httpx
import pytest

from lakehouse.ingesting import missing
from lakehouse.label import label
from lakehouse.query import query
from lakehouse.records import Problem, Status, now
from lakehouse.write import Writer
from sandboxes.external import episode_of, receive, run_of
from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient, GatewayRefused
from sandboxes.gateway.scripted.engine import Scripted
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings

pytestmark = pytest.mark.usefixtures("scripted_tokenizer")
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
ASK = {"role": "user", "content": "Where is my order?"}
FUNCTION = {"name": "look", "arguments": '{"order": "4711"}'}
LOOK = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": FUNCTION}]}
PROBLEM = Problem(
    problem_id="shop/1", kind="external", source="shop", split="train", title="t", prompt="p", spec="{}", licence="CC0-1.0",
    allowed_uses=["training"], difficulty=0.5, oracle_passed=True, null_failed=True, created_at=now(), edition="e1",
)  # fmt: skip


class Application:
    """What an outside application is: HTTP with the keys of its session."""

    def __init__(self, url, client, engine):
        self.client, self.engine = client, engine
        self.http = httpx.AsyncClient(base_url=url, timeout=30, verify=False)

    async def start(self, task="shop/1", **how):
        self.session = await self.client.start_session(task, **how)
        return self.session

    async def ask(self, messages, **more):
        body = {"model": "scripted", "messages": messages, "tools": TOOLS, **more}
        headers = {"Authorization": f"Bearer {self.session.api_key}"}
        return await self.http.post("/v1/chat/completions", json=body, headers=headers)

    async def play(self):
        """Two calls with a tool call between them, whose answer is seen."""
        said = (await self.ask([ASK])).raise_for_status().json()["choices"][0]["message"]
        seen = [{"role": "tool", "tool_call_id": one["id"], "content": "in Oslo"} for one in said["tool_calls"]]
        return (await self.ask([ASK, {"role": "assistant", **said}, *seen])).raise_for_status().json()

    async def close(self):
        """The session as the operator sees it."""
        await self.client.end_session(self.session)
        return (await self.client.closed_sessions())[-1]


@asynccontextmanager
async def world(home, replies=(LOOK, "It is in Oslo."), **engine):
    scripted = Scripted(list(replies), **engine)
    async with scripted.serve() as engine_url:
        gateway = Gateway(Settings(engine=engine_url, home=home, model="scripted"))
        async with serving(gateway.app()) as url, GatewayClient(url, gateway.operator_key) as client:
            application = Application(url, client, scripted)
            yield application, client
            await application.http.aclose()


def land(lake, *results):
    rows = [[row for result in results for row in getattr(result, name)] for name in ("calls", "actions", "evidence")]
    return Writer(lake).land([result.episode for result in results], *rows)


def judged(lake):
    label(lake, "external@1", max_unjudged=1)
    return query("select status, outcome, reward from latest_rewards order by labelled_at", lake).rows()


async def test_a_session_becomes_an_episode_with_calls_actions_evidence_and_a_reward(tmp_path):
    lake = str(tmp_path / "lake")
    async with world(tmp_path) as (application, client):
        session = await application.start()
        answer = await application.play()
        await client.set_reward(session, 0.25, interaction_id=answer["id"], labeller="shop", reason="polite")
        await client.set_reward(session, 0.0, scope="episode", labeller="shop", reason="a mistake of ours")
        await client.set_reward(session, 1.0, scope="episode", labeller="shop", reason="the order was found")
        listed = await application.close()
        result = await receive(client, listed, PROBLEM, model_name="scripted")
        episode = result.episode
        assert (episode.status, episode.problem_kind, episode.problem_id, episode.problem_edition, episode.split) == (
            Status.OK, "external", "shop/1", "e1", "train",
        )  # fmt: skip
        assert (episode.agent, episode.backend, episode.purpose, episode.mode) == (
            "external",
            "none",
            "external",
            "policy",
        )
        assert episode.n_calls == 2 and episode.model_version is not None and episode.run_id == run_of(listed)
        [action] = result.actions
        assert (action.tool, action.arguments, action.observation) == ("look", FUNCTION["arguments"], "in Oslo")
        assert action.call_id == result.calls[0].call_id
        [fact] = result.evidence
        rows = json.loads(fact.value)["rows"]
        assert [(row["call"] is None, row["reward"], row["labeller"], row["reason"]) for row in rows] == [
            (False, 0.25, "shop", "polite"),
            (True, 0.0, "shop", "a mistake of ours"),
            (True, 1.0, "shop", "the order was found"),
        ]
        with pytest.raises(GatewayRefused, match="sealed"):
            await client.set_reward(session, 0.0)
        assert land(lake, result).episodes == 1
        assert judged(lake) == [("scored", 1.0, 1.25)]
        again = await receive(client, listed, PROBLEM, model_name="scripted")
        assert (
            land(lake, again).skipped == [episode.episode_id] and missing(lake, {episode.episode_id: "shop/1"}) == set()
        )


async def test_two_sessions_of_a_problem_are_two_episodes_of_one_group(tmp_path):
    async with world(tmp_path) as (application, client):
        listed = []
        for _ in range(2):
            await application.start()
            await application.play()
            listed.append(await application.close())
        one, two = [(await receive(client, each, PROBLEM, model_name="scripted")).episode for each in listed]
        assert one.group_id == two.group_id and one.episode_id != two.episode_id
        assert one.sample_index != two.sample_index
        later = {**listed[0], "started_at": "2031-01-01T00:00:00+00:00"}  # the same number in a journal begun anew
        assert episode_of(later) != episode_of(listed[0])


async def test_without_a_reward_there_is_no_evidence_and_no_reward_of_0(tmp_path):
    lake = str(tmp_path / "lake")
    async with world(tmp_path) as (application, client):
        await application.start()
        await application.play()
        result = await receive(client, await application.close(), None, model_name="scripted")
    assert result.episode.status == Status.OK and "no reward" in result.episode.error and result.evidence == []
    assert result.episode.problem_edition is None
    land(lake, result)
    assert judged(lake) == [("no_evidence", None, None)]


async def test_a_reward_after_a_call_that_the_engine_lost_is_evidence_and_no_reward(tmp_path):
    lake = str(tmp_path / "lake")
    async with world(tmp_path) as (application, client):
        session = await application.start()
        said = (await application.ask([ASK])).json()["choices"][0]["message"]
        application.engine.failures.extend(["500"] * 20)
        seen = {"role": "tool", "tool_call_id": "c", "content": "in Oslo"}
        assert (await application.ask([ASK, {"role": "assistant", **said}, seen])).status_code == 503
        await client.set_reward(session, 0.0, scope="episode", labeller="shop", reason="no refund was made")
        result = await receive(client, await application.close(), PROBLEM, model_name="scripted")
    assert result.episode.status == Status.INFRA_ERROR and "infra_error" in result.episode.error
    assert len(result.evidence) == 1
    land(lake, result)
    assert judged(lake) == [("not_trainable", None, None)]


async def test_how_a_session_ended_is_its_status(tmp_path):
    async with world(tmp_path) as (application, client):
        await application.start()
        nothing = await receive(client, await application.close(), PROBLEM, model_name="scripted")
        await application.start(limits={"max_calls": 1})
        await application.ask([ASK])
        assert (
            await application.ask([ASK, LOOK, {"role": "tool", "tool_call_id": "c", "content": "x"}])
        ).status_code == 400
        spent = await receive(client, await application.close(), PROBLEM, model_name="scripted")
        await application.start()
        await application.ask([ASK], max_tokens=1)
        cut = await receive(client, await application.close(), PROBLEM, model_name="scripted")
        await application.start(mode="demonstration")
        await application.ask([ASK], demonstration=LOOK)
        shown = await receive(client, await application.close(), PROBLEM, model_name="scripted")
    assert (nothing.episode.status, spent.episode.status, cut.episode.status) == (
        "agent_error",
        "truncated",
        "truncated",
    )
    assert "no model call" in nothing.episode.error and "max_calls" in spent.episode.error
    assert (shown.episode.status, shown.episode.mode, shown.episode.purpose) == ("ok", "demonstration", "demonstration")
    assert shown.episode.model_version is None


async def test_tool_calls_whose_results_nobody_saw_are_left_out(tmp_path):
    async with world(tmp_path) as (application, client):
        await application.start()
        await application.ask([ASK])
        result = await receive(client, await application.close(), PROBLEM, model_name="scripted")
    assert len(result.calls) == 1 and result.actions == []
