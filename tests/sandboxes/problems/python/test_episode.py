"""Whole episodes of the kind: gateway, agent, box, evidence, lake, reward."""

import json
from contextlib import asynccontextmanager

import httpx
import pytest

from lakehouse.label import label
from lakehouse.query import query
from lakehouse.records import Dispatch, Status, dumps, episode_id, group_id, now
from lakehouse.write import Writer
from sandboxes.agents import Sampling
from sandboxes.agents.expert import assistant_turn
from sandboxes.episode import run_episode
from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.scripted.engine import Scripted
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings
from sandboxes.problems.python import KIND, build


@pytest.fixture(scope="module")
def problem():
    return next(one for one in build.build(per_template=1) if len(KIND.expert(one)) == 3)


@asynccontextmanager
async def gateway_before(engine_url, model, home):
    gateway = Gateway(Settings(engine=engine_url, home=home, model=model))
    async with serving(gateway.app()) as url, GatewayClient(url, gateway.operator_key) as client:
        yield client


async def play(client, problem, backend, *, agent="python", model="scripted", sample=0, **sampling):
    intent = Dispatch(
        episode_id=episode_id("run", problem.problem_id, sample), run_id="run", group_id=group_id("run", problem.problem_id),
        problem_id=problem.problem_id, sample_index=sample, agent=agent, purpose="train", created_at=now(),
        mode="demonstration" if agent == "expert" else "policy",
    )  # fmt: skip
    return await run_episode(
        intent, problem, gateway=client, backend=backend, sampling=Sampling(**sampling), deadline_s=60,
        model_name=model, model_version=1,
    )  # fmt: skip


def land(lake, *results):
    rows = [[row for result in results for row in getattr(result, name)] for name in ("calls", "actions", "evidence")]
    return Writer(lake).land([result.episode for result in results], *rows)


async def test_policy_expert_and_null_land_with_evidence_and_are_judged(tmp_path, problem, backend):
    right = json.loads(problem.spec)["answer"]
    turns = [assistant_turn(call, n) for n, call in enumerate(KIND.expert(problem), start=1)]
    results = []
    for script, agent in (
        (turns, "python"),
        ([f"I say \\boxed{{{right}}}."], "python"),
        ([""], "expert"),
        ([""], "null"),
    ):
        async with Scripted(script).serve() as engine, gateway_before(engine, "scripted", tmp_path) as client:
            results.append(await play(client, problem, backend, agent=agent, sample=len(results)))
    assert [result.episode.status for result in results] == [Status.OK] * 4
    assert [len(result.actions) for result in results] == [3, 0, 3, 0]
    lake = str(tmp_path / "lake")
    assert land(lake, *results).episodes == 4
    assert label(lake, "python@1").scored == 4
    judged = query(
        "select outcome, components ->> '$.cells' from rewards join episodes using (episode_id) order by sample_index",
        lake,
    )
    assert judged.rows() == [(1.0, "2"), (1.0, "0"), (1.0, "2"), (0.0, "0")]


@pytest.mark.engine
async def test_an_episode_of_the_real_engine_lands_with_evidence(engine_url, tmp_path, problem, backend):
    async with httpx.AsyncClient(base_url=engine_url, timeout=30) as engine:
        model = (await engine.get("/v1/models")).json()["data"][0]["id"]
    async with gateway_before(engine_url, model, tmp_path) as client:
        result = await play(client, problem, backend, model=model, max_tokens=48, max_turns=2)
    assert Status(result.episode.status).trainable, result.episode.error
    lake = str(tmp_path / "lake")
    assert land(lake, result).episodes == 1
    assert {row["name"] for row in query("select name from evidence", lake).to_dicts()} == {"answer", "python"}
    [tokens] = query("select count(*) as n, count(logprob) as known from tokens", lake).to_dicts()
    assert tokens["n"] == tokens["known"] == result.episode.n_completion_tokens > 0


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"given": "4", "match": True}, ("scored", 1.0, 1.0)),
        ({"given": "5", "match": False}, ("scored", 0.0, 0.0)),
        ({"given": None, "match": False}, ("scored", 0.0, 0.0)),
        (None, ("no_evidence", None, None)),
    ],
)
async def test_given_evidence_expect_reward(tmp_path, problem, backend, answer, expected):
    async with Scripted(["nothing"]).serve() as engine, gateway_before(engine, "scripted", tmp_path) as client:
        result = await play(client, problem, backend, agent="null")
    facts = [fact.model_copy(update={"value": dumps(answer)}) for fact in result.evidence if fact.name == "answer"]
    result.evidence[:] = facts if answer else []
    lake = str(tmp_path / "lake")
    land(lake, result)
    label(lake, "python@1", max_unjudged=1)
    assert query("select status, outcome, reward from latest_rewards", lake).rows() == [expected]
