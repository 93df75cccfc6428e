"""A controller that ends, whichever way, leaves nothing: at once where it is told to end, within the lease where it is killed."""

import json
import signal
import subprocess
import sys
import time

import psutil
import pytest

from sandboxes.backends import cgroup, reap
from sandboxes.backends.docker import CONTROLLER_LABEL, docker_client
from sandboxes.backends.labels import EPISODE

LEASE_S = 4
CONTROLLER = """
import asyncio, json, sys
from sandboxes.backends import choose
from sandboxes.backends.base import BoxSpec, Limits
from sandboxes.backends.labels import EPISODE
from sandboxes.backends.pool import Pool

async def main(name, lease_s):
    limits = Limits(memory_mb=64, lease_s=lease_s)
    async with Pool(choose(name), size=1, warm_s=1, labels={EPISODE: "left-behind"}) as pool:
        box = await pool.start(BoxSpec(limits=limits, labels={EPISODE: "left-behind"}))
        while not any(pool._waiting.values()):
            await asyncio.sleep(0.01)
        print("ready", flush=True)
        try:
            await box.exec(["sleep", "600"], timeout_s=600)
        finally:
            await box.close()

asyncio.run(main(sys.argv[1], float(sys.argv[2])))
"""


class Left:
    """What there is of a controller's boxes: containers, control groups, processes."""

    def __init__(self, pid):
        self.pid = pid
        self.processes = psutil.Process(pid).children(recursive=True)

    def containers(self):
        client = docker_client()
        found = client.containers.list(all=True, ignore_removed=True) if client is not None else []
        return [one.id for one in found if one.labels.get(CONTROLLER_LABEL, "").endswith(f":{self.pid}")]

    def groups(self):
        return [folder for parent in cgroup.parents() for folder in parent.glob(f"*-{self.pid}-*")]

    def all(self):
        return [*self.containers(), *self.groups(), *(one for one in self.processes if one.is_running())]


@pytest.fixture
def controller(backend):
    """A program with one box at work and one that waits."""
    if backend.name == "bubblewrap" and not backend._groups:
        pytest.skip("no control groups here")
    process = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, backend.name, str(LEASE_S)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    if process.stdout.readline() != b"ready\n":
        pytest.fail(process.communicate(timeout=60)[1].decode())
    yield process
    process.kill()
    process.communicate()


def gone(left, deadline_s):
    deadline = time.monotonic() + deadline_s
    while left.all():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_controller_that_is_told_to_end_takes_its_boxes_with_it(controller, how):
    left = Left(controller.pid)
    assert left.containers() or left.groups()
    controller.send_signal(how)
    controller.wait(30)
    assert gone(left, 10)  # a process may be a moment from its end


def test_after_kill_minus_nine_nothing_is_left_once_the_lease_is_over(controller, backend):
    left, killed = Left(controller.pid), time.time()
    assert whose(left, backend) == ["left-behind"] * 2
    assert len(left.containers()) == 2 or len(left.groups()) == 2 * len(cgroup.parents())
    controller.kill()
    controller.wait(30)
    deadline = time.monotonic() + 60
    while left.containers() or any(one.is_running() for one in left.processes):  # these end by themselves
        assert time.monotonic() < deadline
        time.sleep(0.05)
    until = max([int(folder.name.partition("-")[0]) for folder in left.groups()], default=0)
    assert until <= killed + LEASE_S + 2
    time.sleep(max(0.0, until + 1 - time.time()))
    reap()
    assert left.all() == []


def whose(left, backend):
    """The episodes that a controller's boxes say they are of."""
    if backend.name == "docker":
        return [docker_client().containers.get(one).labels[EPISODE] for one in left.containers()]
    launchers = [one for one in left.processes if one.name() == "bwrap" and one.ppid() == left.pid]
    return [json.loads(one.environ()["BOX_LABELS"])[EPISODE] for one in launchers]
