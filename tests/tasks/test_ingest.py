"""From the gateway's journal into the lake: each outside session once, flows' own sessions never, the undecided later."""

import asyncio
import logging

import httpx
import pytest

from lakehouse.governance import scan
from lakehouse.governance.probes import Probes
from lakehouse.query import query
from lakehouse.records import Dispatch, episode_id, group_id, now
from lakehouse.sources import declare
from lakehouse.write import Writer
from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.scripted.engine import Scripted
from sandboxes.gateway.scripted.text import decode
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.sessions.erasing import erase_sessions
from sandboxes.gateway.settings import Settings
from tasks.ingest import find, read, reward_calls
from tasks.land import land

OF_A_FLOW = Dispatch(
    episode_id=episode_id("run", "p", 0), run_id="run", group_id=group_id("run", "p"), problem_id="p", sample_index=0,
    agent="search", mode="policy", purpose="train", created_at=now(),
)  # fmt: skip


async def play(client, task, *, reward=None, end=True, text="hi", subject=None):
    session = await client.start_session(task, subject=subject)
    async with httpx.AsyncClient(base_url=client.base_url, timeout=30, verify=False) as http:
        body = {"model": "scripted", "messages": [{"role": "user", "content": text}]}
        headers = {"Authorization": f"Bearer {session.api_key}"}
        (await http.post("/v1/chat/completions", json=body, headers=headers)).raise_for_status()
    if reward is not None:
        await client.set_reward(session, reward, scope="episode", labeller="app")
    if end:
        await client.end_session(session)
    return session


async def converse(client, task):
    """Two turns, a reward for each and one for the whole; the first turn's is corrected."""
    session = await client.start_session(task)
    turns = [{"role": "user", "content": "hi"}]
    ids = []
    async with httpx.AsyncClient(base_url=client.base_url, timeout=30, verify=False) as http:
        headers = {"Authorization": f"Bearer {session.api_key}"}
        for _ in range(2):
            body = {"model": "scripted", "messages": turns}
            answer = (await http.post("/v1/chat/completions", json=body, headers=headers)).raise_for_status().json()
            ids.append(answer["id"])
            turns = [*turns, answer["choices"][0]["message"], {"role": "user", "content": "and?"}]
    for call, reward in ((ids[0], 9.0), (ids[0], 0.25), (ids[1], 0.5)):
        await client.set_reward(session, reward, interaction_id=call, labeller="app", reason="because")
    await client.set_reward(session, 1.0, scope="episode", labeller="app")
    await client.end_session(session)


async def ingest(patience_s):
    found = await find.fn(patience_s)
    results = await read.fn(found.ready)
    landed = await asyncio.to_thread(land.fn, results)
    return landed.episodes, found.waiting


async def test_outside_sessions_land_once_and_flows_sessions_and_the_undecided_do_not(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    monkeypatch.delenv("LAKELOOP_LAKE", raising=False)
    monkeypatch.setattr("tasks.land.get_run_logger", lambda: logging.getLogger("land"))  # Prefect's, outside of a run
    Writer().append("dispatches", [OF_A_FLOW])
    async with Scripted(["hello"]).serve() as engine_url:
        gateway = Gateway(Settings(engine=engine_url, home=tmp_path, model="scripted"))
        async with serving(gateway.app()) as url, GatewayClient(url, gateway.operator_key) as client:
            monkeypatch.setenv("LAKELOOP_GATEWAY_PORT", url.rpartition(":")[2])
            await play(client, "shop/1", reward=1.0)
            undecided = await play(client, "shop/2")
            await play(client, OF_A_FLOW.episode_id, reward=1.0)
            await play(client, "shop/3", reward=0.5, end=False)
            assert await ingest(3600) == (1, 1)
            assert await ingest(3600) == (0, 1)
            await client.set_reward(undecided, 0.5, scope="episode", labeller="a person, later")
            assert await ingest(3600) == (1, 0)
            await play(client, "shop/4")
            assert await ingest(0) == (1, 0)
            assert await ingest(0) == (0, 0)
    landed = query("select problem_id, problem_kind, status from episodes order by problem_id").rows()
    assert landed == [(f"shop/{n}", "external", "ok") for n in (1, 2, 4)]
    rewarded = query("select problem_id from episodes semi join evidence using (episode_id) order by problem_id").rows()
    assert rewarded == [("shop/1",), ("shop/2",)]


async def test_rewards_of_single_calls_become_rows_that_credit_can_use(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    monkeypatch.delenv("LAKELOOP_LAKE", raising=False)
    monkeypatch.setattr("tasks.land.get_run_logger", lambda: logging.getLogger("land"))
    async with Scripted(["hello", "again"]).serve() as engine_url:
        gateway = Gateway(Settings(engine=engine_url, home=tmp_path, model="scripted"))
        async with serving(gateway.app()) as url, GatewayClient(url, gateway.operator_key) as client:
            monkeypatch.setenv("LAKELOOP_GATEWAY_PORT", url.rpartition(":")[2])
            await converse(client, "shop/1")
            assert await ingest(0) == (1, 0)
    assert (reward_calls.fn(), reward_calls.fn()) == (3, 0)  # every reward is a row, once
    held = query("""
        select call_index, reward, reason, rubric, continues_call_id = parent_call_id as goes_on
        from latest_call_rewards inner join calls using (episode_id, call_id) order by call_index
    """).rows()
    assert held == [(0, 0.25, "because", "external", None), (1, 0.5, "because", "external", True)]


async def test_whose_data_it_is_goes_with_the_episode_and_takes_the_session_along(
    tmp_path, monkeypatch, scripted_tokenizer
):
    monkeypatch.delenv("LAKELOOP_LAKE", raising=False)
    monkeypatch.setattr("tasks.land.get_run_logger", lambda: logging.getLogger("land"))
    monkeypatch.setenv("LAKELOOP_MODEL", str(tmp_path / "scripted"))
    async with Scripted(["hello"]).serve() as engine_url:
        gateway = Gateway(Settings(engine=engine_url, home=tmp_path, model="scripted"))
        async with serving(gateway.app()) as url, GatewayClient(url, gateway.operator_key) as client:
            monkeypatch.setenv("LAKELOOP_GATEWAY_PORT", url.rpartition(":")[2])
            await play(client, "shop/1", reward=1.0, subject="customer-17")
            await play(client, "shop/2", reward=1.0)
            assert await ingest(0) == (2, 0)
            await play(client, "shop/3", subject="customer-17")  # not landed: it is the subject's all the same
    landed = query("select problem_id, subject from episodes order by problem_id").rows()
    assert landed == [("shop/1", "customer-17"), ("shop/2", None)]
    journal, keys = tmp_path / "gateway" / "journal.db", tmp_path / "keys" / "sessions"
    assert erase_sessions(journal, keys, lambda *about: about[3] == "customer-17") == 2
    assert erase_sessions(journal, keys, lambda *about: about[1] == "shop/2") == 1


SECRET = "ghp_" + "a1B2" * 9


def places(home):
    """Where in the home folder it can be read, as text or as token ids, packed or not."""
    search = scan.Search(Probes(texts=[SECRET], tokens=[list(SECRET.encode())[:16]]))
    scanned = scan.Scanned()
    scan.folder(home, search, scanned)
    assert scanned.files > 5 and not scanned.unread
    return scanned.found


@pytest.mark.parametrize("privacy", ["mask", "allow"])
async def test_what_must_not_be_kept_is_nowhere_in_the_home_folder(tmp_path, monkeypatch, scripted_tokenizer, privacy):
    """Said by a user, repeated by the model, given as a reason: from the first request to the last row."""
    monkeypatch.delenv("LAKELOOP_LAKE", raising=False)
    monkeypatch.setattr("tasks.land.get_run_logger", lambda: logging.getLogger("land"))
    monkeypatch.setenv("LAKELOOP_MODEL", str(tmp_path / "scripted"))
    declare(None, "external", licence="MIT", allowed_uses=["training"], consent="given", privacy=privacy)
    async with Scripted([f"Your token is {SECRET}."]).serve() as engine_url:
        gateway = Gateway(Settings(engine=engine_url, home=tmp_path, model="scripted"))
        async with serving(gateway.app()) as url, GatewayClient(url, gateway.operator_key) as client:
            monkeypatch.setenv("LAKELOOP_GATEWAY_PORT", url.rpartition(":")[2])
            session = await play(client, "shop/1", text=f"my token: {SECRET}", end=False)
            await client.set_reward(session, 1.0, reason=f"it told {SECRET}", labeller="shop")
            assert not places(tmp_path)  # in the journal only, encrypted
            await client.end_session(session)
            assert await ingest(0) == (1, 0)
            reward_calls.fn()
            assert not any((tmp_path / "keys" / "sessions").iterdir())
    found = places(tmp_path)
    [(said, answer, flags, ids)] = query(
        "select request_messages, response_message, redacted, completion_token_ids from calls"
    ).rows()
    if privacy == "allow":  # the scan does find what is there
        assert {what for told in found.values() for what in told} == {"text", "tokens"} and flags is None
        return
    assert not found
    assert "<redacted:github_token>" in said and "<redacted:github_token>" in answer
    assert sum(flags) == len(SECRET) and decode(ids).startswith("Your token is")
    assert "<redacted:github_token>" in query("select value from evidence").item()
    assert query("select count(*) from redactions").item() > 3


async def test_what_cannot_be_masked_waits_until_the_tokenizer_is_known(tmp_path, monkeypatch, scripted_tokenizer):
    monkeypatch.delenv("LAKELOOP_LAKE", raising=False)
    monkeypatch.setattr("tasks.land.get_run_logger", lambda: logging.getLogger("land"))
    async with Scripted(["hello"]).serve() as engine_url:
        gateway = Gateway(Settings(engine=engine_url, home=tmp_path, model="scripted"))
        async with serving(gateway.app()) as url, GatewayClient(url, gateway.operator_key) as client:
            monkeypatch.setenv("LAKELOOP_GATEWAY_PORT", url.rpartition(":")[2])
            monkeypatch.setenv("LAKELOOP_MODEL", "nobody/knows")
            await play(client, "shop/1", reward=1.0)
            assert await ingest(0) == (0, 0)
            assert await ingest(0) == (0, 0)
            assert query("select count(*) from quarantine").item() == 1
            monkeypatch.setenv("LAKELOOP_MODEL", str(tmp_path / "scripted"))
            assert await ingest(0) == (1, 0)
            assert await ingest(0) == (0, 0)
