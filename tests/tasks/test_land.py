"""What has landed cannot be read any more where it was recorded, and is in time pruned there."""

import asyncio
import logging

import pytest

from lakehouse.records import Dispatch, episode_id, group_id, now
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


async def episode(client):
    """One episode of a policy that answers in plain text."""
    problem = build(n=1)[0]
    intent = Dispatch(
        episode_id=episode_id("run", problem.problem_id, 0), run_id="run", group_id=group_id("run", problem.problem_id),
        problem_id=problem.problem_id, sample_index=0, agent="search", mode="policy", purpose="train", created_at=now(),
    )  # fmt: skip
    return await run_episode(
        intent, problem, gateway=client, backend=ScriptedBackend(), sampling=Sampling(), deadline_s=20,
        model_name="scripted", model_version=1,
    )  # fmt: skip


async def test_nobody_can_read_the_sessions_of_landed_episodes_then_they_are_pruned_and_landing_needs_no_gateway(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    monkeypatch.delenv("LAKELOOP_LAKE", raising=False)
    monkeypatch.setattr("tasks.land.get_run_logger", lambda: logging.getLogger("land"))  # Prefect's, outside of a run
    async with Scripted(["hello"]).serve() as engine_url:
        gateway = Gateway(Settings(engine=engine_url, home=tmp_path, model="scripted"))
        async with serving(gateway.app()) as url, GatewayClient(url, gateway.operator_key) as client:
            monkeypatch.setenv("LAKELOOP_GATEWAY_PORT", url.rpartition(":")[2])
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
    assert await asyncio.to_thread(maintain.prune.fn) == 0  # nobody there: said, and no failure
    assert (await asyncio.to_thread(land.fn, [result])).episodes == 0
    assert "not all of their sessions could be made unreadable" in caplog.text


async def test_what_landed_while_the_gateway_was_away_is_shredded_later_and_what_did_not_land_is_not(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    monkeypatch.delenv("LAKELOOP_LAKE", raising=False)
    monkeypatch.setattr("tasks.land.get_run_logger", lambda: logging.getLogger("land"))
    async with Scripted(["hello"]).serve() as engine_url:
        gateway = Gateway(Settings(engine=engine_url, home=tmp_path, model="scripted"))
        async with serving(gateway.app()) as url, GatewayClient(url, gateway.operator_key) as client:
            result = await episode(client)
            other = await client.start_session("not-landed")
            await client.end_session(other)
            monkeypatch.setenv("LAKELOOP_GATEWAY_PORT", "1")
            await asyncio.to_thread(land.fn, [result])
            assert len(list((tmp_path / "keys" / "sessions").iterdir())) == 2
            monkeypatch.setenv("LAKELOOP_GATEWAY_PORT", url.rpartition(":")[2])
            assert await asyncio.to_thread(shred_what_landed.fn) == 1
            assert await asyncio.to_thread(shred_what_landed.fn) == 0
            assert await client.calls(other.session_id, episode_id="e", attempt_id="a") == []
