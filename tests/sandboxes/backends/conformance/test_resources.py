"""What a box may use: memory, processes, disk, descriptors, output. Every hog is the end of itself, not of its box."""

import asyncio
import signal

import pytest

from sandboxes.backends import runner
from sandboxes.backends.base import BoxSpec, Limits, SandboxError
from tests.sandboxes.backends.conformance.outside import mark, marked, until

SMALL = Limits(memory_mb=128, workdir_mb=16, pids=24)


@pytest.fixture
async def small(backend):
    box = await backend.start(BoxSpec(limits=SMALL))
    yield box
    fine = await box.exec(["sh", "-c", "echo fine"], timeout_s=20)
    assert fine.stdout == b"fine\n"
    await box.close()


async def python(box, script: str, *, timeout_s: float = 30.0):
    return await box.exec(["python3", "-c", script], timeout_s=timeout_s)


@pytest.mark.parametrize(
    "hog",
    [
        "x = []\nwhile True: x.append(bytearray(1 << 20))",
        "import mmap\nx = []\nwhile True:\n  x.append(mmap.mmap(-1, 1 << 20)); x[-1].write(bytes(1 << 20))",  # shared, no file
        "import os\nf = os.memfd_create('f')\nwhile True: os.write(f, bytes(1 << 20))",
    ],
    ids=["heap", "shared", "memfd"],
)
async def test_a_memory_hog_is_killed(small, hog):
    assert (await python(small, hog)).exit_code == -signal.SIGKILL


OUTLIVE_THE_RUNNER = "echo 0 > /proc/self/oom_score_adj; exec head -c 300000000 /dev/zero > /testbed/fill"


async def test_a_box_whose_runner_is_killed_for_memory_says_so(backend):
    box = await backend.start(BoxSpec(limits=Limits(memory_mb=64)))
    with pytest.raises(SandboxError, match=r"ended with status 137, [1-9]\d* processes killed for memory"):
        await box.exec(["sh", "-c", OUTLIVE_THE_RUNNER], timeout_s=30)
    await box.close()


async def test_a_box_that_ended_otherwise_blames_no_memory(backend):
    box, sleep = await backend.start(BoxSpec()), mark()
    busy = asyncio.ensure_future(box.exec(["sleep", sleep], timeout_s=60))
    (command,) = await until(lambda: marked(sleep), "the command runs")
    command.parent().kill()  # the runner
    with pytest.raises(SandboxError, match=r"ended with status 137, 0 processes killed for memory"):
        await busy
    await box.close()


SYSTEM_V = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.shmget(0, 64 << 20, 0o1600), libc.msgget(0, 0o1600), libc.semget(0, 32000, 0o1600))
"""


async def test_memory_cannot_be_left_behind_in_system_v_ipc(small):
    assert (await python(small, SYSTEM_V)).stdout == b"-1 -1 -1\n"


QUEUES = """
import ctypes, os, resource, sys
rt = ctypes.CDLL("librt.so.1", use_errno=True)
total = 0  # may be none: one quota is shared by all boxes of a machine
while True:
    like = (ctypes.c_long * 8)(0, 10, 8192)  # struct mq_attr: ten messages of 8 KiB
    if rt.mq_open(b"/q%d" % total, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600, ctypes.byref(like)) < 0:
        break
    total += 81920
print(total <= int(sys.argv[1]), os.strerror(ctypes.get_errno()))
resource.setrlimit(resource.RLIMIT_MSGQUEUE, (1 << 24, 1 << 24))
"""


@pytest.mark.parametrize("limit", [819_200, 409_600])
async def test_message_queues_are_limited_by_the_runner_and_end_with_the_box(backend, monkeypatch, limit):
    usual = runner.program()
    program = usual.replace(b"MESSAGE_QUEUES = 819_200", f"MESSAGE_QUEUES = {limit:_}".encode())
    assert (program == usual) == (limit == 819_200)
    monkeypatch.setattr(runner, "program", lambda: program)  # another limit than what is inherited shows whose it is
    for _ in range(2):  # and the second box finds nothing of the first
        box = await backend.start(BoxSpec(limits=SMALL))
        result = await box.exec(["python3", "-c", QUEUES, str(limit)], timeout_s=30)
        assert result.stdout == b"True Too many open files\n"
        assert b"not allowed to raise maximum limit" in result.stderr
        await box.close()


async def test_a_crowd_meets_the_process_limit_and_zombies_do_not_stay_in_it(small):
    leave_orphans = "import os\nfor _ in range(10):\n  if os.fork() == 0:\n    os.fork(); os._exit(0)"
    for _ in range(4):
        assert (await python(small, leave_orphans)).exit_code == 0
    zombies = "import os, time\nfor _ in range(10):\n  if os.fork() == 0: os._exit(0)\ntime.sleep(0.1)"
    for _ in range(4):
        assert (await python(small, zombies)).exit_code == 0
    crowd = await python(
        small, "import os, time\nfor _ in range(60):\n  if os.fork() == 0: time.sleep(30); os._exit(0)"
    )
    assert b"BlockingIOError" in crowd.stderr
    threads = await python(
        small,
        "import threading, time\nfor _ in range(60): threading.Thread(target=time.sleep, args=(30,), daemon=True).start()",
    )
    assert b"can't start new thread" in threads.stderr


async def test_disks_are_as_large_as_said(small):
    for folder, size in {"/testbed": 16, "/tmp": 64, "/home/agent": 16, "/dev/shm": 16}.items():
        filled = await small.exec(
            ["sh", "-c", f"head -c 200000000 /dev/zero > {folder}/fill; stat -c %s {folder}/fill; rm -f {folder}/fill"],
            timeout_s=60,
        )
        assert b"No space left" in filled.stderr, folder
        assert int(filled.stdout) == size << 20, folder


async def test_a_full_work_tree_is_the_writers_error(small):
    with pytest.raises(ValueError, match="No space left"):
        await small.write({"a": b"x" * (32 << 20), "b": b"y"})
    assert (await small.exec(["rm", "-f", "a"], timeout_s=20)).exit_code == 0


DESCRIPTORS = """
import os
held = []
try:
    while True: held.append(os.open("/dev/null", 0))
except OSError as error:
    print(error.errno, len(held) <= 4096)
"""


async def test_descriptors_are_limited_and_their_end_is_the_commands(small):
    assert (await python(small, DESCRIPTORS)).stdout == b"24 True\n"
    assert (
        await python(small, "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))")
    ).exit_code == 1


async def test_endless_output_is_drained_and_both_its_ends_are_kept(small):
    result = await small.exec(["sh", "-c", "echo first; yes | head -c 30000000; echo last; yes e >&2"], timeout_s=2)
    assert result.stopped_by == "deadline"
    assert result.stdout.startswith(b"first\ny\n")
    assert result.stdout.endswith(b"y\nlast\n")
    assert b"bytes left out ...]\n" in result.stdout
    assert len(result.stdout) < SMALL.output_bytes + 100 > len(result.stderr)
    assert result.dropped_bytes > 29_000_000


BURN = """
import os, time
for _ in range(2): os.fork()
end = time.monotonic() + 2
while time.monotonic() < end: pass
os.write(1, b"%f\\n" % time.process_time())
time.sleep(0.5)
"""


async def test_the_processor_share_is_bounded(backend):
    box = await backend.start(BoxSpec(limits=Limits(cpus=0.5)))
    result = await python(box, BURN)
    used = sum(float(line) for line in result.stdout.split())
    assert used < 2 * 0.5 + 0.4  # and what was burnt to start
    await box.close()


SHARE = """
import os, time
def used():  # by every process of the box, in seconds
    ticks = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with open(f"/proc/{pid}/stat") as file:
            ticks += sum(map(int, file.read().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")
before, own, began = used(), time.process_time(), time.monotonic()
while time.monotonic() < began + 3: pass
print(used() - before, time.process_time() - own)
"""


async def test_a_background_process_and_a_command_share_the_processor_of_one_box(backend):
    box = await backend.start(BoxSpec(limits=Limits(cpus=0.5)))
    await box.start(["python3", "-c", "while True: pass"])
    both, command = map(float, (await python(box, SHARE)).stdout.split())
    assert both < 3 * 0.5 + 0.4
    assert both - command > 0.1 < command  # neither of them stood still
    await box.close()
