"""What has landed is sealed where it was recorded, and in time pruned there."""

import asyncio
import logging

from lakehouse.records import Dispatch, episode_id, group_id, now
from sandboxes.agents import Sampling
from sandboxes.backends.scripted import ScriptedBackend
from sandboxes.episode import run_episode
from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.scripted.engine import Scripted
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings
from sandboxes.problems.search.build import build
from tasks import maintain
from tasks.land import land


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


async def test_the_sessions_of_landed_episodes_are_sealed_then_pruned_and_landing_needs_no_gateway(
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
            assert (await client.report(result.episode.session_id))["state"] == "sealed"
            again = await asyncio.to_thread(land.fn, [result])
            assert again.episodes == 0
            assert await asyncio.to_thread(maintain.prune.fn) == 0  # sealed just now
            monkeypatch.setattr(maintain, "KEPT_DAYS", 0)
            assert await asyncio.to_thread(maintain.prune.fn) == len(result.calls)
    assert await asyncio.to_thread(maintain.prune.fn) == 0  # nobody there: said, and no failure
    assert (await asyncio.to_thread(land.fn, [result])).episodes == 0
    assert "not all of their sessions could be sealed" in caplog.text
