"""Weights that are served and not proven, on scripted engines: what they are called, who believes them, what follows."""

import asyncio

import pytest

from tasks.serving.deploy import deploy
from tasks.serving.engine import UNKNOWN_VERSION, Engine
from tasks.serving.gate import Gate
from tests.tasks.serving.replicas import Replica, made


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
