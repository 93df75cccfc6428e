"""docs/examples/shop_agent.py: an application of its own, from its gates to the rewards of its episodes in the lake."""

import asyncio
import json
import os
import sys

import pytest

from lakehouse.label import label
from lakehouse.query import query
from lakehouse.records import Problem
from lakehouse.write import Writer
from sandboxes.external import receive
from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.scripted.engine import Scripted
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings
from sandboxes.problems.foreign import Terms
from sandboxes.problems.imports import read
from tasks.stack.settings import ROOT

PROGRAM = ROOT / "docs" / "examples" / "shop_agent.py"
TERMS = Terms(name="shop", split="train", licence="Apache-2.0", allowed_uses=("training", "evaluation"))


async def run(*arguments, **environment):
    process = await asyncio.create_subprocess_exec(
        sys.executable, PROGRAM, *arguments, env=os.environ | environment, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, told.decode()
    return told.decode()


@pytest.fixture
def shop(monkeypatch):
    """The program as a module."""
    monkeypatch.syspath_prepend(PROGRAM.parent)
    import shop_agent

    yield shop_agent
    for name in [name for name in sys.modules if name.split(".")[0] in ("shop_agent", "shop", "session")]:
        del sys.modules[name]


@pytest.fixture
async def problems(tmp_path) -> dict[str, Problem]:
    await run("--problems", str(tmp_path / "problems.jsonl"))
    return {problem.problem_id: problem for problem in read("external", tmp_path / "problems.jsonl", TERMS)}


async def test_the_expert_serves_every_customer_and_doing_nothing_none(problems):
    assert len(problems) >= 20
    assert all(problem.oracle_passed and problem.null_failed for problem in problems.values())
    assert {problem.split for problem in problems.values()} == {"train", "eval"}


def test_a_wrong_or_a_further_act_a_wrong_outcome_and_silence_are_wrong_books(shop):
    for case in shop.SCENARIOS:
        *asks_and_acts, close = shop.plan(case)
        further = shop.using(90, "change_address", {"order": "4742", "address": "mine"})
        assert case.wrong(shop.converse(case, shop.scripted([*asks_and_acts, further, close]))), case.name
        other = shop.using(91, "close_case", {"outcome": "answered" if case.outcome == "refused" else "refused"})
        assert case.wrong(shop.converse(case, shop.scripted([*asks_and_acts, other]))), case.name
        assert case.wrong(shop.converse(case, shop.scripted(asks_and_acts))), case.name


def test_one_way_to_serve_everybody_serves_few(shop):
    for outcome in ("refused", "refunded", "replaced", "escalated", "cancelled"):
        turns = [shop.using(0, "close_case", {"outcome": outcome})]
        right = [case for case in shop.SCENARIOS if case.wrong(shop.converse(case, shop.scripted(turns))) is None]
        assert len(right) <= len(shop.SCENARIOS) * 0.4, outcome


def test_a_customer_answers_what_is_asked_and_leaves_who_does_not_ask(shop):
    case = next(one for one in shop.SCENARIOS if one.address)
    customer = shop.Customer(case)
    assert (
        customer.answer("Your order number and e-mail address, please?")
        == f"The order is {case.order}. My e-mail is {case.email}."
    )
    assert case.address in customer.answer("Where should it go?")
    assert [customer.answer("Well."), customer.answer("Well.")] == [
        "I have told you already. What will you do about it?"
    ] * 2
    assert customer.answer("Well.") is None


def test_tools_say_what_is_wrong_with_a_call(shop):
    books = shop.Shop()
    for name, arguments in (
        ("rob", {}),
        ("refund", {"order": "4711"}),
        ("refund", {"order": "4711", "amount": True}),
        ("refund", {"order": "4711", "amount": 10_000}),
        ("cancel", {"order": "9999"}),
        ("close_case", {"outcome": "happy"}),
    ):
        assert books.call(name, arguments).startswith("error:"), name
    assert books.changes == {} and books.outcome is None


async def test_its_sessions_become_episodes_with_its_rewards(tmp_path, shop, problems, scripted_tokenizer):
    case = shop.SCENARIOS[0]
    chosen = ["--only", case.name]
    places = {"LAKELOOP_HOME": str(tmp_path), "MODEL": "scripted"}
    lake = str(tmp_path / "lake")
    results = []
    for replies, more in (
        (shop.plan(case), []),
        (["I cannot help."], ["--samples", "2"]),
        ([""], ["--agent", "expert"]),
    ):
        async with Scripted(replies).serve() as engine:
            gateway = Gateway(Settings(engine=engine, home=tmp_path, model="scripted"))
            async with serving(gateway.app()) as url, GatewayClient(url, gateway.operator_key) as client:
                await run(*chosen, *more, GATEWAY_URL=url, **places)
                for session in await client.closed_sessions():
                    if session["state"] == "ended":
                        results.append(await receive(client, session, problems[case.problem_id], model_name="scripted"))
    Writer(lake).land(
        [result.episode for result in results],
        *([row for result in results for row in getattr(result, name)] for name in ("calls", "actions", "evidence")),
    )
    assert label(lake, "external@1").scored == 4
    judged = query(
        "select mode, outcome from latest_rewards join episodes using (episode_id) order by sample_index", lake
    )
    assert judged.rows() == [("policy", 1.0), ("policy", 0.0), ("policy", 0.0), ("demonstration", 1.0)]
    told = json.loads(results[1].evidence[0].value)["rows"][0]
    assert told["labeller"] == "example" and "closed as None" in told["reason"]
    assert [action.tool for action in results[0].actions] == ["lookup_order", "replace"]
    assert results[0].episode.group_id == results[1].episode.group_id
