"""When a box ends: it is closed, a call to it is cancelled, its lease is over, its controller dies. Then nothing of it is left."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from sandboxes.backends import cgroup, client, runner
from sandboxes.backends.base import BoxSpec, Limits, SandboxError
from tests.sandboxes.backends.conformance.outside import mark, marked, until


async def sh(box, script: str, *, timeout_s: float = 20.0):
    return await box.exec(["sh", "-c", script], timeout_s=timeout_s)


async def test_closing_kills_what_runs_and_the_waiting_caller_is_told(box):
    sleep = mark()
    busy = asyncio.ensure_future(box.exec(["sleep", sleep], timeout_s=60))
    await until(lambda: marked(sleep), "the command runs")
    await box.close()
    assert not marked(sleep)
    with pytest.raises(SandboxError, match="it was closed"):
        await busy


async def test_a_cancelled_call_ends_the_box(box):
    sleep = mark()
    busy = asyncio.ensure_future(box.exec(["sleep", sleep], timeout_s=60))
    await until(lambda: marked(sleep), "the command runs")
    busy.cancel()
    with pytest.raises(asyncio.CancelledError):
        await busy
    assert not marked(sleep)
    with pytest.raises(SandboxError, match="cancelled"):
        await sh(box, "true")


async def test_a_box_ends_with_its_lease(backend):
    box = await backend.start(BoxSpec(limits=Limits(lease_s=2)))
    sleep = mark()
    with pytest.raises(SandboxError, match="lease of 2 s ended"):
        await box.exec(["sleep", sleep], timeout_s=60)
    assert not marked(sleep)
    await box.close()


FREEZER = Path("/sys/fs/cgroup/freezer")  # of version 1: what is in there when it freezes does not die of SIGKILL


@pytest.fixture
def frozen():
    """Freezes a process for good, until the test is over."""
    group = FREEZER / f"lakeloop-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no freezer of control groups' version 1: {error}")

    def freeze(process):
        (group / "cgroup.procs").write_text(str(process.pid))
        (group / "freezer.state").write_text("FROZEN")

    yield freeze
    (group / "freezer.state").write_text("THAWED")
    end = time.monotonic() + 15
    while (group / "cgroup.procs").read_text():
        assert time.monotonic() < end, "what was frozen does not end"
        time.sleep(0.05)
    group.rmdir()


@pytest.mark.optional  # the kernel must have what no box can make: a process that does not die
async def test_a_process_that_cannot_be_killed_ends_its_box(backend, frozen, monkeypatch):
    patient = runner.program()
    hasty = patient.replace(b"KILL_DEADLINE_S = 20.0", b"KILL_DEADLINE_S = 01.0")  # as long, for its length is told
    assert hasty != patient
    monkeypatch.setattr(runner, "program", lambda: hasty)
    monkeypatch.setattr(client, "GRACE_S", 5.0)
    monkeypatch.setattr(cgroup, "REMOVE_DEADLINE_S", 1.0)
    box, sleep = await backend.start(BoxSpec()), mark()
    busy = asyncio.ensure_future(box.exec(["sleep", sleep], timeout_s=1))
    (command,) = await until(lambda: marked(sleep), "the command runs")
    init = command.parent()
    frozen(command)
    await until(lambda: not init.cmdline(), "the runner gives its box up", deadline_s=4)  # it exits: its memory is gone
    with pytest.raises(SandboxError):
        await busy
    with pytest.raises(SandboxError):
        await sh(box, "true")
    with pytest.raises(SandboxError, match=r"would not die|cannot be removed"):
        await box.close()


CONTROLLER = """
import asyncio, sys
from sandboxes.backends import choose
from sandboxes.backends.base import BoxSpec

async def main():
    box = await choose(sys.argv[1]).start(BoxSpec(labels={"mark": sys.argv[2]}))
    await box.exec(["setsid", "sleep", sys.argv[2]], timeout_s=100)

asyncio.run(main())
"""


async def test_a_killed_controller_leaves_no_box(backend):
    sleep = mark()
    controller = await asyncio.create_subprocess_exec(sys.executable, "-c", CONTROLLER, backend.name, sleep)
    try:
        await until(lambda: marked(sleep), "the box runs", deadline_s=60)
    finally:
        controller.send_signal(signal.SIGKILL)
        await controller.wait()
    await until(lambda: not marked(sleep), "the box is gone")
    assert not marked(sleep)
