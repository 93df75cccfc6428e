"""A canary that is killed with -9: real gateway, MLflow, Prefect, lake. Engines are scripted: they have a label and no weights."""

import asyncio
import json
import os
import shutil
import sys
from contextlib import AsyncExitStack

import httpx
import numpy as np
import pytest
from safetensors.numpy import save_file
from starlette.responses import JSONResponse
from starlette.routing import Route

from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.scripted.engine import Scripted
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings as GatewaySettings
from tasks.registry.moves import CHALLENGER
from tasks.registry.versions import CHAMPION, Lineage
from tasks.stack.settings import ROOT

pytestmark = [pytest.mark.stack, pytest.mark.engine, pytest.mark.timeout(600)]

WITHIN_S = 120
DRIVEN = """
import asyncio, json, sys, time
import flows.canary as canary, flows.reconcile as reconcile
from tasks.serving.engine import Engine
from tasks.serving.gate import Gate
from tasks.stack import Settings

def serve(version, swap="keep", engines=None):
    settings = Settings()
    with Gate(settings.gateway_url, settings.operator_key) as gate:
        for url in engines or gate.engines():
            with Engine(url) as engine:
                engine.label(version)
            gate.proven(url, version)
    if engines is None:
        print("SERVED EVERYWHERE", flush=True)
        time.sleep(600)

canary.serve = reconcile.serve = serve
asked = json.loads(sys.argv[1])
print(asyncio.run(canary.canary(**asked)) if asked else reconcile.reconcile())
"""


class Labelled(Scripted):
    """A scripted engine whose label can be set, as a deployment does."""

    def app(self):
        made = super().app()
        made.router.routes.append(Route("/update_weight_version", self.relabel, methods=["POST"]))
        return made

    async def relabel(self, request):
        self.weight_version = (await request.json())["new_version"]
        return JSONResponse({})


class World:
    """A gateway before two engines that serve the champion, and flow runs that act on them."""

    def __init__(self, registry, name, champion, challenger, own):
        self.registry, self.name, self.champion, self.challenger, self.own = registry, name, champion, challenger, own
        self.engines, self.http, self.client, self.started = [], None, None, []

    async def canary(self, **asked):
        return await self.run(
            "-c", DRIVEN, json.dumps({"version": self.challenger, "poll_s": 0.3, "drain_s": 0, **asked})
        )

    async def run(self, *arguments):
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, cwd=ROOT, env=os.environ | self.own,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        self.started.append(process)
        return process

    async def said(self, process):
        out, _ = await asyncio.wait_for(process.communicate(), WITHIN_S)
        return out.decode()

    async def reconciled(self):
        process = await self.run("-c", DRIVEN, "{}")
        said = await self.said(process)
        assert process.returncode == 0, said

    async def status(self):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "flows", "status", "--json", cwd=ROOT, env=os.environ | self.own,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, _ = await asyncio.wait_for(process.communicate(), WITHIN_S)
        return json.loads(out)

    async def split(self):
        return (await self.http.get("/engines")).json()["split"]

    async def parted(self, process):
        """Wait until the challenger gets its share."""
        async with asyncio.timeout(WITHIN_S):
            while not ((found := await self.split()) and found["share"] > 0):
                assert process.returncode is None, await self.said(process)
                await asyncio.sleep(0.1)
        return found

    async def sessions(self, count=24):
        """How many of that many new sessions get which version."""
        begun = [await self.client.start_session(f"t{n}") for n in range(count)]
        found = (await self.http.get("/engines")).json()["sessions"]
        for one in begun:
            await self.client.end_session(one)
        return found

    def aliases(self):
        return self.registry.promoted(self.name, CHAMPION), self.registry.promoted(self.name, CHALLENGER)

    def labels(self):
        return [one.weight_version for one in self.engines]


@pytest.fixture
async def world(stack, registry, tmp_path):
    name = f"killed-{tmp_path.name}"
    versions = []
    for value in (1.0, 2.0):
        folder = tmp_path / f"weights-{value}"
        folder.mkdir()
        save_file({"a": np.full(1, value, np.float32)}, folder / "model.safetensors", {"format": "pt"})
        (folder / "config.json").write_text('{"vocab_size": 8}')
        versions.append(
            registry.register(name, folder, lineage=Lineage(stage="base", parent=versions[0] if versions else None))
        )
    registry.promote(name, versions[0])
    home = tmp_path / "gateway"
    shutil.copytree(stack.home.keys, home / "keys")
    async with AsyncExitStack() as alive:
        engines = [Labelled(["hello"], model=name, weight_version=str(versions[0])) for _ in range(2)]
        urls = [await alive.enter_async_context(one.serve()) for one in engines]
        gateway = Gateway(GatewaySettings(engine=urls[0], more_engines=urls[1:], home=home, model=name))
        at = await alive.enter_async_context(serving(gateway.app()))
        own = {
            "LAKELOOP_LAKE": str(tmp_path / "lake"),
            "LAKELOOP_MODEL": name,
            "LAKELOOP_ENGINE_URL": urls[0],
            "LAKELOOP_GATEWAY_PORT": at.rpartition(":")[2],
        }
        made = World(registry, name, *versions, own)
        made.engines = engines
        made.client = await alive.enter_async_context(GatewayClient(at, gateway.operator_key))
        headers = {"Authorization": f"Bearer {gateway.operator_key}"}
        made.http = await alive.enter_async_context(httpx.AsyncClient(base_url=at, headers=headers, timeout=30))
        yield made
        for process in made.started:
            if process.returncode is None:
                process.kill()
                await process.communicate()


async def test_a_killed_canary_leaves_its_share_and_alias_which_status_says_and_the_same_command_begins_anew(world):
    first = await world.canary(share=0.5)
    await world.parted(first)
    second = await world.canary(share=0.5)
    assert f"process {first.pid} runs a canary here already" in await world.said(second)
    assert (second.returncode, first.returncode) == (1, None)
    assert (await world.status())["split"]["canary"]
    await world.reconciled()  # which leaves it alone
    assert (await world.split())["share"] == 0.5
    assert world.labels() == [str(world.champion), str(world.challenger)]
    first.kill()
    await first.communicate()

    got = await world.sessions()
    assert set(got) == {str(world.champion), str(world.challenger)} and sum(got.values()) == 24  # until its lease ends
    assert world.aliases() == (world.champion, world.challenger)
    told = await world.status()
    assert (told["champion"], told["challenger"]) == (world.champion, world.challenger)
    split = told["split"]
    assert (split["champion"], split["challenger"], split["share"]) == (world.champion, world.challenger, 0.5)
    assert not split["canary"]

    again = await world.canary(share=0.25, deadline_s=1, if_undecided="roll_back")
    said = await world.said(again)
    assert again.returncode == 0, said
    assert "and no canary is at work that would end it" in said
    assert "not told apart in time" in said
    assert await world.split() is None
    assert world.aliases() == (world.champion, None)
    assert world.labels() == [str(world.champion)] * 2


async def test_a_canary_killed_while_it_promotes_has_promoted_nothing_and_reconcile_puts_the_champion_back(world):
    """The latest moment before the alias moves: the challenger is served everywhere by then."""
    promoting = await world.canary(share=0.5, deadline_s=1, if_undecided="promote")
    async with asyncio.timeout(WITHIN_S):
        while b"SERVED EVERYWHERE" not in (line := await promoting.stdout.readline()):
            assert line, "it ended before it promoted"
    promoting.kill()
    await promoting.communicate()
    assert world.labels() == [str(world.challenger)] * 2
    assert world.aliases() == (world.champion, world.challenger)

    await world.reconciled()
    assert await world.split() is None
    assert world.labels() == [str(world.champion)] * 2
    assert world.aliases() == (world.champion, world.challenger)  # a person, or the next canary, decides
    told = await world.status()
    assert (told["split"], told["champion"], told["challenger"]) == (None, world.champion, world.challenger)
