import asyncio
import sys

from sandboxes.problems.swe.slots import Slots

HOLD = """
import asyncio, sys
from pathlib import Path
from sandboxes.problems.swe.slots import Slots

async def hold():
    async with Slots(Path(sys.argv[1]), 1).take():
        print("held", flush=True)
        await asyncio.sleep(600)

asyncio.run(hold())
"""


async def test_nothing_runs_beside_the_one_that_runs_alone(tmp_path):
    slots, order = Slots(tmp_path, 2), []

    async def other():
        async with slots.take():
            order.append("other")

    async with slots.take(alone=True):
        waiting = asyncio.create_task(other())
        await asyncio.sleep(0.1)
        order.append("alone")
    await waiting
    assert order == ["alone", "other"]


async def test_no_more_run_at_once_than_there_are_slots(tmp_path):
    slots, running, most = Slots(tmp_path, 2), 0, 0

    async def one():
        nonlocal running, most
        async with slots.take():
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1

    await asyncio.gather(*(one() for _ in range(6)))
    assert most == 2


async def test_another_process_counts_and_its_death_frees_its_slot(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    other = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(60):
            assert await other.stdout.readline() == b"held\n"
        taken = asyncio.create_task(_take(Slots(tmp_path, 1)))
        await asyncio.sleep(0.1)
        assert not taken.done()
    finally:
        other.kill()
        await other.wait()
    async with asyncio.timeout(20):
        await taken


async def _take(slots):
    async with slots.take():
        pass
