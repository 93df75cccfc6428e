"""What commands start: it is dead when their result comes back, whatever it did to escape."""

import asyncio
import platform

import pytest

from sandboxes.backends.base import BoxSpec
from tests.sandboxes.backends.conformance.outside import mark, marked, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def sh(box, script: str, *, timeout_s: float = 20.0, **more):
    return await box.exec(["sh", "-c", script], timeout_s=timeout_s, **more)


ESCAPE = """
import os, subprocess, sys, time
subprocess.Popen(["setsid", "sleep", sys.argv[1]])
subprocess.Popen(["nohup", "sleep", sys.argv[1]])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", sys.argv[1]])
    os._exit(0)
print("away", flush=True)
time.sleep(float(sys.argv[2]))
"""


@pytest.mark.parametrize("stays", ["60", "0.2"])
async def test_nothing_a_command_started_outlives_it(shared, stays):
    sleep = mark()
    result = await shared.exec(["python3", "-c", ESCAPE, sleep, stays], timeout_s=2)
    assert result.stdout == b"away\n"
    assert result.timed_out == (stays == "60")
    assert result.exit_code == (None if result.timed_out else 0)
    assert not marked(sleep)


HOPPING = """
import os
while True:  # never the same process for long
    try:
        if os.fork():
            os._exit(0)
        os.setsid()
    except OSError:
        pass
"""
THREADS = """
import threading
while True:
    try:
        threading.Thread(target=threading.Event().wait).start()
    except RuntimeError:
        pass
"""
BOMBS = {
    "shell": ["sh", "-c", "f() { f | f & }; { f; } & exec sleep 60"],
    "fork": ["python3", "-c", "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"],
    "hopping": ["python3", "-c", HOPPING],
    "threads": ["python3", "-c", THREADS],
}


@pytest.mark.parametrize("bomb", BOMBS)
async def test_a_fork_bomb_leaves_the_box_answering(shared, bomb):
    result = await shared.exec(BOMBS[bomb], timeout_s=1)
    assert result.stopped_by == "deadline" or bomb == "hopping"  # whose first process ends at once


DEAF = """
import os, signal, subprocess, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
child = subprocess.Popen(["sleep", "1000"])
os.kill(child.pid, signal.SIGSTOP)  # a stopped process must not be waited for
print("deaf", flush=True)
if os.fork() == 0:
    os.setsid()
os.kill(0, signal.SIGCONT)
while True:
    time.sleep(1)
"""


async def test_ignored_and_stopped_processes_die_at_the_deadline(shared):
    result = await shared.exec(["python3", "-c", DEAF], timeout_s=4)
    assert (result.stdout, result.stopped_by, result.exit_code) == (b"deaf\n", "deadline", None)
    assert (await sh(shared, "kill -STOP $$; echo on", timeout_s=1)).stopped_by == "deadline"


VFORK = """
import ctypes, os
libc = ctypes.CDLL(None)
if os.fork() == 0:
    # The parent of a vfork waits for its child and cannot be interrupted, not even in the kernel's own time.
    libc.syscall({vfork}) if {vfork} else None
    while True: pass
while True: pass
"""


LOCK = """
import fcntl, os
held = open("/tmp/lock", "w")
fcntl.flock(held, fcntl.LOCK_EX)
if os.fork() == 0:
    fcntl.flock(open("/tmp/lock", "w"), fcntl.LOCK_EX)
os.wait()
"""


async def test_a_wait_that_cannot_be_interrupted_is_no_way_to_stay(shared):
    number = 58 if platform.machine() == "x86_64" else 0
    result = await shared.exec(["python3", "-c", VFORK.format(vfork=number)], timeout_s=1)
    assert result.stopped_by == "deadline"
    pipe = "mkfifo /tmp/never; cat /tmp/never; rm /tmp/never"  # waits for a writer
    assert (await sh(shared, pipe, timeout_s=0.5)).stopped_by == "deadline"
    assert (await shared.exec(["python3", "-c", LOCK], timeout_s=0.5)).stopped_by == "deadline"


async def test_signals_end_a_command_and_say_which_it_was(shared):
    for number in (1, 2, 3, 9, 11, 15):
        assert (await sh(shared, f"kill -{number} $$")).exit_code == -number
    assert (await sh(shared, "kill -9 -1; echo gone")).exit_code in (-9, 0)  # its own, and nobody else's
    assert (await sh(shared, "kill -STOP 1; kill -KILL 1; kill -TERM 1; echo fine")).stdout == b"fine\n"


HOLDER = """
import os
while True:  # writes for ever to whatever output it finds open
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            os.write(os.open(f"/proc/{pid}/fd/1", os.O_WRONLY | os.O_NONBLOCK), b"x" * 4096)
        except OSError:
            pass
"""


async def test_a_descriptor_given_away_keeps_nobody_waiting(shared):
    number = await shared.start(["python3", "-c", HOLDER])
    for _ in range(3):
        result = await sh(shared, "sleep 0.3; echo mine")
        assert result.exit_code == 0
        assert b"mine\n" in result.stdout
    await shared.stop(number)


async def test_boxes_do_not_see_each_other(backend, shared):
    other = await backend.start(BoxSpec())
    sleep = mark()
    busy = asyncio.ensure_future(shared.exec(["sleep", sleep], timeout_s=2))
    await until(lambda: marked(sleep), "the command runs")
    assert sleep.encode() not in (await sh(other, "ps -ef; ls -la /testbed /tmp")).stdout
    assert await other.snapshot() == {}
    await other.close()
    assert (await busy).stopped_by == "deadline"
