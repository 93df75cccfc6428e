"""The question without tools, as an ordinary episode through the gateway: over the scripted engine, and over a real one."""

import json

import pytest

from lakehouse.records import Dispatch, Status, episode_id, group_id, now
from sandboxes.agents import Sampling
from sandboxes.backends.scripted import ScriptedBackend
from sandboxes.episode import run_episode
from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.scripted.engine import Scripted
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings
from sandboxes.problems.search.build import build


@pytest.fixture(scope="module")
def problem():
    return build(n=3)[0]


async def ask(problem, engine_url, model, home):
    async with serving(Gateway(Settings(engine=engine_url, home=home, model=model)).app()) as at:
        key = (home / "keys" / "operator").read_text().strip()
        async with GatewayClient(at, key, timeout_s=30) as client:
            return await run_episode(
                Dispatch(
                    episode_id=episode_id("run", problem.problem_id, 0),
                    run_id="run",
                    group_id=group_id("run", problem.problem_id),
                    problem_id=problem.problem_id,
                    sample_index=0,
                    agent="closed-book",
                    mode="policy",
                    purpose="closed-book",
                    created_at=now(),
                ),
                problem,
                gateway=client,
                backend=ScriptedBackend(),
                sampling=Sampling(temperature=0.0, max_tokens=24),
                deadline_s=60,
                model_name=model,
                model_version=0,
            )


def answer(result):
    return next(json.loads(fact.value) for fact in result.evidence if fact.name == "answer")


@pytest.mark.parametrize("knows", [True, False])
async def test_what_the_model_says_without_tools_is_graded_as_its_answer(tmp_path, problem, knows):
    right = json.loads(problem.spec)["accepted"][0]
    async with Scripted([f" {right}\n" if knows else "I do not know."]).serve() as url:
        result = await ask(problem, url, "scripted", tmp_path)
    assert result.episode.status == Status.OK, result.episode.error
    assert answer(result)["match"] is knows
    (call,) = result.calls
    asked = json.loads(call.request_messages)
    assert json.loads(call.tools) == [] and [m["role"] for m in asked] == ["system", "user"]
    assert asked[1]["content"] == problem.prompt and right not in asked[0]["content"]
    assert [action.tool for action in result.actions] == ["answer"]


@pytest.mark.engine
async def test_a_real_engine_is_asked_without_tools(tmp_path, engine_url, problem):
    result = await ask(problem, engine_url, "tiny", tmp_path)
    assert result.episode.status == Status.OK, result.episode.error
    (call,) = result.calls
    assert call.token_status == "exact" and 0 < len(call.completion_token_ids) <= 24
    assert answer(result)["given"] and answer(result)["match"] is False
