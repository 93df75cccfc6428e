"""What has landed cannot be read any more where it was recorded, and is in time pruned there."""

import asyncio
import importlib
import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest

from lakehouse.records import Dispatch, episode_id, group_id, now
from lakehouse.write import DuplicateEpisode, Writer
from sandboxes.agents import Sampling
from sandboxes.backends.scripted import ScriptedBackend
from sandboxes.episode import run_episode
from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient, GatewayRefused
from sandboxes.gateway.scripted.engine import Scripted
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings
from sandboxes.problems.search.build import build
from tasks import maintain
from tasks.land import land, shred_what_landed


@pytest.fixture
async def client(tmp_path, monkeypatch):
    """Of a gateway in a home of its own, which the tasks find too."""
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    monkeypatch.delenv("LAKELOOP_LAKE", raising=False)
    monkeypatch.setattr("tasks.land.get_run_logger", lambda: logging.getLogger("land"))  # Prefect's, outside of a run
    async with Scripted(["hello"]).serve() as engine_url:
        gateway = Gateway(Settings(engine=engine_url, home=tmp_path, model="scripted"))
        async with serving(gateway.app()) as url, GatewayClient(url, gateway.operator_key) as client:
            monkeypatch.setenv("LAKELOOP_GATEWAY_PORT", url.rpartition(":")[2])
            yield client


async def readable(client):
    """The sessions that are over and can still be read."""
    return {one["session_id"] for one in await client.closed_sessions()}


PROBLEM = build(n=1)[0]


def dispatch(sample=0):
    return Dispatch(
        episode_id=episode_id("run", PROBLEM.problem_id, sample), run_id="run", group_id=group_id("run", PROBLEM.problem_id),
        problem_id=PROBLEM.problem_id, sample_index=sample, agent="search", mode="policy", purpose="train", created_at=now(),
    )  # fmt: skip


async def episode(client, sample=0):
    """One episode of a policy that answers in plain text."""
    return await run_episode(
        dispatch(sample), PROBLEM, gateway=client, backend=ScriptedBackend(), sampling=Sampling(), deadline_s=20,
        model_name="scripted", model_version=1,
    )  # fmt: skip


async def test_nobody_can_read_the_sessions_of_landed_episodes_then_they_are_pruned_and_landing_needs_no_gateway(
    client, tmp_path, monkeypatch, caplog
):
    result = await episode(client)
    landed = await asyncio.to_thread(land.fn, [result])
    assert landed.episodes == 1 and not caplog.records
    with pytest.raises(GatewayRefused, match=r"410.*key destroyed"):
        await client.report(result.episode.session_id)
    assert not any((tmp_path / "keys" / "sessions").iterdir())
    again = await asyncio.to_thread(land.fn, [result])
    assert again.episodes == 0
    assert await asyncio.to_thread(maintain.prune.fn) == 0  # sealed just now
    monkeypatch.setattr(maintain, "KEPT_DAYS", 0)
    assert await asyncio.to_thread(maintain.prune.fn) == len(result.calls)
    monkeypatch.setenv("LAKELOOP_GATEWAY_PORT", "1")
    assert await asyncio.to_thread(maintain.prune.fn) == 0  # nobody there: said, and no failure
    assert (await asyncio.to_thread(land.fn, [result])).episodes == 0
    assert "not all of their sessions could be made unreadable" in caplog.text


async def test_what_landed_while_the_gateway_was_away_is_shredded_later_and_what_did_not_land_is_not(
    client, tmp_path, monkeypatch
):
    result = await episode(client)
    other = await client.start_session("not-landed")
    await client.end_session(other)
    with monkeypatch.context() as away:
        away.setenv("LAKELOOP_GATEWAY_PORT", "1")
        await asyncio.to_thread(land.fn, [result])
    assert len(list((tmp_path / "keys" / "sessions").iterdir())) == 2
    assert await asyncio.to_thread(shred_what_landed.fn) == 1
    assert await asyncio.to_thread(shred_what_landed.fn) == 0
    assert await client.calls(other.session_id, episode_id="e", attempt_id="a") == []


async def test_where_one_of_a_shard_comes_twice_the_sessions_of_the_others_are_shredded_too(client):
    first, other = await episode(client), await episode(client, 1)
    await asyncio.to_thread(land.fn, [first])
    call = first.calls[0].model_copy(update={"latency_s": 9.0})
    with pytest.raises(DuplicateEpisode):
        await asyncio.to_thread(land.fn, [replace(first, calls=[call, *first.calls[1:]]), other])
    assert await readable(client) == set()


async def test_maintaining_shreds_what_landed_and_after_a_week_what_was_refused_or_never_came(client, monkeypatch):
    flow = importlib.import_module("flows.maintain")
    for name in ("prune_trees", "compact", "tell_mlflow", "retain", "vacuum", "count", "check"):
        monkeypatch.setattr(flow, name, lambda **_: None)
    monkeypatch.setattr(flow, "collect_checkpoints", lambda *_, **__: SimpleNamespace(is_completed=lambda: False))
    monkeypatch.setattr(flow, "prune", maintain.prune.fn)
    monkeypatch.setattr(flow, "shred_what_landed", shred_what_landed.fn)
    landed, refused = await episode(client), await episode(client, 1)
    refused = replace(refused, episode=refused.episode.model_copy(update={"n_calls": 9}))
    await asyncio.to_thread(Writer().append, "dispatches", [dispatch(sample) for sample in range(3)])
    killed, outside = await client.start_session(dispatch(2).episode_id), await client.start_session("shop/1")
    for one in (killed, outside):
        await client.end_session(one)
    with monkeypatch.context() as away:
        away.setenv("LAKELOOP_GATEWAY_PORT", "1")
        told = await asyncio.to_thread(land.fn, [landed, refused])
    assert told.quarantined == [refused.episode.episode_id]
    waiting = {refused.episode.session_id, killed.session_id}
    assert await readable(client) == {landed.episode.session_id, outside.session_id, *waiting}
    await asyncio.to_thread(flow.maintain.fn, dry_run=True)
    assert len(await readable(client)) == 4
    await asyncio.to_thread(flow.maintain.fn)
    assert await readable(client) == {outside.session_id, *waiting}
    monkeypatch.setattr("tasks.land.KEPT_DAYS", 0)
    await asyncio.to_thread(flow.maintain.fn)
    assert await readable(client) == {outside.session_id}
