"""A controller that ends, whichever way, leaves nothing: at once where it is told to end, within the lease where it is killed."""

import asyncio
import json
import secrets
import signal
import subprocess
import sys
import time

import psutil
import pytest

from sandboxes.backends import cgroup, choose, images, reap
from sandboxes.backends.base import BoxSpec, Limits
from sandboxes.backends.docker import CONTROLLER_LABEL, _options, docker_client
from sandboxes.backends.labels import EPISODE
from sandboxes.backends.pool import START_S

LEASE_S = 4
CONTROLLER = """
import asyncio, contextlib, sys
from sandboxes.backends import choose
from sandboxes.backends.base import BoxSpec, Limits
from sandboxes.backends.labels import EPISODE
from sandboxes.backends.pool import Pool

async def main(name, lease_s, how):
    limits = Limits(memory_mb=64, lease_s=lease_s)
    backend = choose(name)
    pool = Pool(backend, size=1, warm_s=3, labels={EPISODE: "left-behind"}) if how == "pool" else None
    async with pool or contextlib.nullcontext():
        box = await (pool or backend).start(BoxSpec(limits=limits, labels={EPISODE: "left-behind"}))
        while pool and not any(pool._waiting.values()):
            await asyncio.sleep(0.01)
        print("ready", flush=True)
        if how == "careless":
            await asyncio.sleep(600)
        try:
            await box.exec(["sleep", "600"], timeout_s=600)
        finally:
            await box.close()

asyncio.run(main(sys.argv[1], float(sys.argv[2]), sys.argv[3]))
"""
WAYS = ("pool", "no pool", "careless")  # the last one closes nothing


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
def run(backend):
    """Starts a program with a box at work; with a pool, another one waits."""
    if backend.name == "bubblewrap" and not backend._groups:
        pytest.skip("no control groups here")
    running = []

    def start(how, *, lease_s=LEASE_S, through=()):
        command = [*through, sys.executable, "-c", CONTROLLER, backend.name, str(lease_s), how]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        running.append(process)
        if process.stdout.readline() != b"ready\n":
            pytest.fail(process.communicate(timeout=60)[1].decode())
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def gone(left, deadline_s):
    deadline = time.monotonic() + deadline_s
    while left.all():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_controller_that_is_told_to_end_takes_its_boxes_with_it(run, how, way):
    controller = run(way, lease_s=600)
    left = Left(controller.pid)
    assert left.containers() or left.groups()
    controller.send_signal(how)
    controller.wait(30)
    assert gone(left, 10)  # a process may be a moment from its end


def test_a_controller_in_a_shells_background_is_told_to_end_too(run):
    controller = run("no pool", lease_s=600, through=["sh", "-c", 'trap "" INT; exec "$@"', "sh"])
    left = Left(controller.pid)
    controller.send_signal(signal.SIGTERM)
    controller.wait(30)
    assert gone(left, 10)


def test_a_controller_that_ignores_hanging_up_goes_on(run):
    controller = run("no pool", lease_s=600, through=["nohup"])
    controller.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        controller.wait(1)
    assert len(Left(controller.pid).processes) > 0 or Left(controller.pid).containers()


@pytest.mark.parametrize("by", ["reap", "the next start"])
def test_after_kill_minus_nine_nothing_is_left_once_the_lease_is_over(run, backend, by):
    controller = run("pool")
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
    assert until <= killed + LEASE_S + 3 + START_S + 1  # the lease, the wait of the warm one, its start; rounded up
    time.sleep(max(0.0, until + 1 - time.time()))
    if by == "reap":
        reap()
    else:
        asyncio.run(start_and_close(choose(backend.name)))
    assert left.all() == []


async def start_and_close(backend):
    await (await backend.start(BoxSpec(limits=Limits(memory_mb=64)))).close()


def test_the_next_start_removes_what_is_past_its_lease_and_nothing_else(backend):
    if backend.name == "bubblewrap" and not backend._groups:
        pytest.skip("no control groups here")
    late, early = (planted(backend, lease_s) for lease_s in (-5, 500))
    try:
        asyncio.run(start_and_close(choose(backend.name)))
        assert (there(late), there(early)) == (False, True)
    finally:
        remove(early)
        remove(late)


def planted(backend, lease_s):
    """What a controller leaves that is killed before its box runs."""
    limits = Limits(memory_mb=64, lease_s=lease_s)
    if backend.name == "bubblewrap":
        return cgroup.create(backend._groups, limits)
    options = {
        **_options(BoxSpec(limits=limits)),
        "name": f"lakeloop-planted-{secrets.token_hex(6)}",
        "entrypoint": ["true"],
    }
    return backend._client.containers.create(images.STANDARD.name, **options)


def there(one):
    if isinstance(one, cgroup.Group):
        return any(folder.exists() for folder in one.folders)
    return one.id in [other.id for other in one.client.containers.list(all=True, ignore_removed=True)]


def remove(one):
    if isinstance(one, cgroup.Group):
        asyncio.run(one.remove())
    elif there(one):
        one.remove(force=True)


def whose(left, backend):
    """The episodes that a controller's boxes say they are of."""
    if backend.name == "docker":
        return [docker_client().containers.get(one).labels[EPISODE] for one in left.containers()]
    launchers = [one for one in left.processes if one.name() == "bwrap" and one.ppid() == left.pid]
    return [json.loads(one.environ()["BOX_LABELS"])[EPISODE] for one in launchers]
