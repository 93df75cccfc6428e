"""A version onto a fleet of scripted engines behind a gateway: who serves it, who is left out, what is put back."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace

import httpx
import pytest

from lakehouse.query import query
from sandboxes.gateway.app import Gateway
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings
from tasks import reconcile, release
from tasks.registry.watch import Watch
from tasks.release import NotDeployed, serve
from tests.tasks.serving.replicas import Replica, made


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Versions 1 and 2 in a registry; 2 is promoted. What goes to Prefect is left away."""
    folders = {version: made(tmp_path / str(version), -float(version)) for version in (1, 2)}
    registry = SimpleNamespace(
        intact=lambda _, version: folders[version],
        version=lambda *_: SimpleNamespace(lineage=SimpleNamespace(parent=None)),
        promoted=lambda _, alias="champion": 2 if alias == "champion" else None,
    )
    for module in (release, reconcile):
        monkeypatch.setattr(module, "Registry", lambda _: registry)
    for name in ("show", "tell"):
        monkeypatch.setattr(release, name, lambda *_, **__: None)
    monkeypatch.setattr(reconcile.moves, "note_others", lambda *_: [])
    monkeypatch.setattr(Watch, "alive", lambda *_: False)
    return folders


@pytest.fixture
def fleet(folders, tmp_path, monkeypatch):
    """`async with fleet() as (replicas, urls, states)`: three engines of version 1; `states()` as the gateway has them."""

    @asynccontextmanager
    async def start():
        home = tmp_path / "home"
        monkeypatch.setenv("LAKELOOP_HOME", str(home))
        async with AsyncExitStack() as stack:
            replicas = [Replica(folders[1], -1.0) for _ in range(3)]
            urls = [await stack.enter_async_context(one.serve()) for one in replicas]
            gateway = Gateway(Settings(engine=urls[0], more_engines=urls[1:], home=home, model="scripted"))
            at = await stack.enter_async_context(serving(gateway.app()))
            monkeypatch.setenv("LAKELOOP_ENGINE_URL", urls[0])
            monkeypatch.setenv("LAKELOOP_GATEWAY_PORT", at.rpartition(":")[2])
            headers = {"Authorization": f"Bearer {gateway.operator_key}"}
            http = await stack.enter_async_context(httpx.AsyncClient(base_url=at, headers=headers, timeout=30))

            async def states():
                return [one["state"] for one in (await http.get("/engines")).json()["engines"]]

            yield replicas, urls, states

    return start


def labels(replicas):
    return [one.weight_version for one in replicas]


def written():
    return query("select version, engine_url, accepted from deployments order by deployed_at").rows()


async def test_a_replica_that_does_not_come_to_serve_a_version_is_left_out_until_it_is_proven(fleet):
    async with fleet() as (replicas, urls, states):
        replicas[1].unmoved = True
        await asyncio.to_thread(serve.fn, 2)
        assert labels(replicas) == ["2", "-1", "2"]
        assert await states() == ["serving", "stale", "serving"]
        assert written() == [(2, urls[0], True), (2, urls[1], False), (2, urls[2], True)]
        due = await asyncio.to_thread(reconcile.look.fn)
        assert (due.version, due.engines, due.own) == (2, [urls[1]], False)
        replicas[1].unmoved = False
        await asyncio.to_thread(serve.fn, 2, engines=due.engines)
        assert (labels(replicas), await states()) == (["2"] * 3, ["serving"] * 3)
        assert (await asyncio.to_thread(reconcile.look.fn)).engines == []


@pytest.mark.parametrize("broken", [0, 2], ids=["the stack's own", "another"])
async def test_one_that_the_gateway_doubts_is_due_though_its_label_is_the_promoted_version(fleet, broken):
    """A doubt that could be said to the gateway, and not to the engine."""
    async with fleet() as (replicas, urls, states):
        await asyncio.to_thread(serve.fn, 2)
        with release.Gate(release.Settings().gateway_url, release.Settings().operator_key) as gate:
            await asyncio.to_thread(gate.doubted, urls[broken])
        assert (labels(replicas), (await states())[broken]) == (["2"] * 3, "stale")
        due = await asyncio.to_thread(reconcile.look.fn)
        assert due.engines == [urls[broken]]
        await asyncio.to_thread(serve.fn, 2, engines=due.engines)
        assert await states() == ["serving"] * 3


async def test_a_replica_out_of_reach_is_left_out_under_whatever_label_it_has(fleet):
    async with fleet() as (replicas, urls, states):
        replicas[2].broken = {"/pause", "/update_weight_version"}
        await asyncio.to_thread(serve.fn, 2)
        assert (labels(replicas), await states()) == (["2", "2", "1"], ["serving", "serving", "stale"])
        assert written()[2] == (2, urls[2], False)


async def test_where_the_first_does_not_come_to_serve_it_that_one_is_put_back_and_no_other_is_touched(fleet):
    async with fleet() as (replicas, urls, states):
        replicas[0].overflow = -2.0
        with pytest.raises(NotDeployed, match=f"version 2 is not proven on {urls[0]}: .*the weights are damaged"):
            await asyncio.to_thread(serve.fn, 2)
        assert (labels(replicas), await states()) == (["1"] * 3, ["serving"] * 3)
        assert [one.loaded for one in replicas] == [[-2.0, -1.0], [], []]
        assert written() == [(1, urls[0], True), (2, urls[0], False)]
