"""Weights that are served and not proven, on scripted engines: what they are called, who believes them, what follows."""

import asyncio
import os
import signal
import sys

import pytest

from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient, GatewayUnavailable
from sandboxes.gateway.engines.labels import claimed
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings
from tasks.serving.deploy import deploy
from tasks.serving.engine import UNKNOWN_VERSION, Engine
from tasks.serving.errors import EngineError
from tasks.serving.gate import Gate
from tests.tasks.serving.replicas import Replica, made

DEPLOYER = """
import sys
from pathlib import Path
from tasks.serving.deploy import deploy
from tasks.serving.engine import Engine
from tasks.serving.gate import Gate

url, folder, gateway, key = sys.argv[1:]
with Engine(url) as engine, Gate(gateway, Path(key)) as gate:
    deploy(engine, Path(folder), 2, gate)
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path / "home"))


@pytest.fixture
def folders(tmp_path):
    """Three versions."""
    return {version: made(tmp_path / str(version), -float(version)) for version in (1, 2, 3)}


@pytest.fixture
def gate(tmp_path):
    """No gateway is there: nothing to hold back."""
    with Gate("http://127.0.0.1:9", tmp_path / "operator") as gate:
        yield gate


def deployed(url, folder, version, gate):
    with Engine(url) as engine:
        return deploy(engine, folder, version, gate)


async def test_damaged_weights_are_not_proven_and_a_good_version_can_follow_them(folders, gate):
    replica = Replica(folders[1], -1.0)
    replica.overflow = -2.0  # finite where it was trained
    async with replica.serve() as url:
        proof = await asyncio.to_thread(deployed, url, folders[2], 2, gate)
        assert not proof.passed
        assert "the weights are damaged" in proof.reason
        assert '"mean_difference":null' in proof.model_dump_json()
        assert replica.weight_version == str(UNKNOWN_VERSION)
        proof = await asyncio.to_thread(deployed, url, folders[3], 3, gate)
        assert proof.passed, proof.reason
        assert proof.mean_movement is None
        assert replica.weight_version == "3"


async def test_a_proof_that_fails_leaves_weights_that_nobody_knows(folders, gate):
    replica = Replica(folders[1], -1.0)
    async with replica.serve() as url:
        replica.breaks_once_swapped = {"/inference/v1/generate"}
        with pytest.raises(EngineError, match="/inference/v1/generate gave 500"):
            await asyncio.to_thread(deployed, url, folders[2], 2, gate)
        assert replica.weight_version == str(UNKNOWN_VERSION)
        # Nor are they taken for proven where even that cannot be said.
        replica.broken, replica.breaks_once_labelled = set(), {"/inference/v1/generate", "/update_weight_version"}
        with pytest.raises(EngineError, match="/inference/v1/generate gave 500"):
            await asyncio.to_thread(deployed, url, folders[3], 3, gate)
        assert claimed(replica.weight_version) == "3"


async def test_weights_that_a_gateway_does_not_believe_are_no_success(folders, gate, monkeypatch):
    def refused(*_):
        raise EngineError("the gateway refused")

    monkeypatch.setattr(gate, "proven", refused)
    async with Replica(folders[1], -1.0).serve() as url:
        with pytest.raises(EngineError, match="the gateway refused"):
            await asyncio.to_thread(deployed, url, folders[2], 2, gate)
        with Engine(url) as engine:
            assert await asyncio.to_thread(engine.served_version) == UNKNOWN_VERSION


async def test_a_deployer_that_is_killed_while_it_proves_leaves_weights_that_nobody_believes(folders, tmp_path):
    replica = Replica(folders[1], -1.0)
    replica.holds = asyncio.Event()
    async with replica.serve() as url:
        gateway = Gateway(Settings(engine=url, home=tmp_path / "gateway", model="scripted"))
        async with serving(gateway.app()) as at, GatewayClient(at, gateway.operator_key) as client:
            await client.start_session("before")
            key = tmp_path / "gateway" / "keys" / "operator"
            command = [sys.executable, "-c", DEPLOYER, url, str(folders[2]), at, str(key)]
            deployer = await asyncio.create_subprocess_exec(*command, start_new_session=True)
            async with asyncio.timeout(60):
                while claimed(replica.weight_version) != "2":  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.02)
            await asyncio.sleep(0.3)
            os.killpg(deployer.pid, signal.SIGKILL)
            await deployer.wait()
            replica.holds.set()
            with Engine(url) as engine:
                assert await asyncio.to_thread(engine.served_version) == UNKNOWN_VERSION  # as `reconcile` sees it
            [member] = gateway.engines.members
            await gateway.engines.pause(url, 0)  # as it ends by itself
            assert member.state == "stale"
            with pytest.raises(GatewayUnavailable, match="are not proven: deploy a version"):
                await client.start_session("after")
            with Gate(at, key) as gate:
                proof = await asyncio.to_thread(deployed, url, folders[2], 2, gate)
            assert proof.passed, proof.reason
            await client.start_session("again")
