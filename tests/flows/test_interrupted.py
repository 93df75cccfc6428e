"""A run that is broken off leaves no process behind, and an engine that dies is nobody's zero."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager

import psutil
import pytest

from lakehouse import connect
from sandboxes.backends import cgroup, prepare
from sandboxes.backends.base import BackendUnavailable
from sandboxes.gateway.app import Gateway
from sandboxes.gateway.scripted.engine import Scripted
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings as GatewaySettings
from tasks.stack.settings import ROOT

pytestmark = [pytest.mark.stack, pytest.mark.engine, pytest.mark.timeout(600)]


@pytest.mark.bubblewrap
def test_ctrl_c_ends_a_collect_and_its_boxes_with_status_130(stack, command, sources, deployments):
    try:
        prepare("bubblewrap")
    except BackendUnavailable as reason:
        pytest.skip(str(reason))
    arguments = ["--problems", '{"swe": 3}', "--agent", "expert", "--purpose", "demonstration", "--samples", "2"]
    process = command("collect", *arguments, "--backend", "bubblewrap", "--run-id", "broken-off")
    boxes = boxes_of(process)
    groups = groups_of(boxes)
    assert groups
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.split()[-1] == "interrupted"
    assert "Traceback" not in out + err
    _, left = psutil.wait_procs(boxes, timeout=10)
    assert left == []
    assert [group for group in groups if group.exists()] == []
    own = [run for run in deployments.runs("collect") if run["parameters"].get("run_id") == "broken-off"]
    assert [run["state_type"] for run in own] == ["CRASHED"]
    with connect() as connection:
        landed = connection.execute("select count(*) from episodes where run_id = 'broken-off'").fetchone()
    assert landed == (0,)


async def test_an_engine_that_dies_in_an_episode_makes_it_an_infra_error_without_a_reward(stack, tmp_path):
    asked = asyncio.Event()

    def reply(_):
        asked.set()
        return "x" * 400

    home = tmp_path / "gateway"
    shutil.copytree(stack.home.keys, home / "keys")
    engine, alive = Scripted(reply, token_delay_s=0.2), AsyncExitStack()
    dying = await alive.enter_async_context(engine.serve())
    gateway = Gateway(GatewaySettings(engine=dying, home=home, model=engine.model))
    async with alive, serving(gateway.app()) as at:
        own = {
            "LAKELOOP_LAKE": str(tmp_path / "lake"),
            "LAKELOOP_MODEL": engine.model,
            "LAKELOOP_ENGINE_URL": dying,
            "LAKELOOP_GATEWAY_PORT": at.rpartition(":")[2],
        }
        arguments = ["--problems", '{"search": 2}', "--samples", "1", "--deadline-s", "8", "--run-id", "dying"]
        async with lakeloop("collect", *arguments, **own) as running:
            await asyncio.wait_for(asked.wait(), 120)
            await alive.aclose()
            out, err = await asyncio.wait_for(running.communicate(), 120)
        assert running.returncode == 0, err
        assert b'"infra_error": 2' in out
    async with lakeloop("label", "--rubrics", '["search@2"]', **own) as judging:
        _, err = await asyncio.wait_for(judging.communicate(), 120)
    assert judging.returncode == 0, err
    with connect(str(tmp_path / "lake")) as connection:
        found = connection.sql("from episodes join latest_rewards as judged using (episode_id)").pl().to_dicts()
    assert [(one["status"], one["reward"], one["outcome"]) for one in found] == [("infra_error", None, None)] * 2
    assert all("running agent search: ModelUnavailable" in one["error"] for one in found)


@asynccontextmanager
async def lakeloop(*arguments, **environment):
    """A command beside this event loop, which serves its gateway."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "flows", *arguments),
        cwd=ROOT,
        env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def boxes_of(process):
    """The bubblewrap processes that came from a process, as soon as there are some."""
    deadline = time.monotonic() + 120
    while True:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no box was started"
        with contextlib.suppress(psutil.NoSuchProcess):  # one that ended while we looked
            if found := [one for one in psutil.Process(process.pid).children(recursive=True) if one.name() == "bwrap"]:
                return found
        time.sleep(0.05)


def groups_of(boxes):
    """The control groups these processes are in."""
    pids = {str(box.pid) for box in boxes}
    folders = [folder for parent in cgroup.parents() for folder in parent.iterdir() if folder.is_dir()]
    return [folder for folder in folders if pids & set((folder / "cgroup.procs").read_text().split())]
