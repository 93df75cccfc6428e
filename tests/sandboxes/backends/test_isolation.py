"""What a box keeps in: processes, memory, the network, the host's files; and when it ends."""

import asyncio
import secrets
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from sandboxes.backends.base import BoxSpec, Limits, SandboxError


async def sh(box, script: str, *, timeout_s: float = 20.0):
    return await box.exec(["sh", "-c", script], timeout_s=timeout_s)


async def python(box, script: str, *, timeout_s: float = 20.0):
    return await box.exec(["python3", "-c", script], timeout_s=timeout_s)


def running(mark: str) -> bool:
    """Whether a process with this text among its arguments runs on the machine, in whatever box."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (process / "cmdline").read_bytes().split(b"\0"):
                return True
    return False


async def until(condition, what: str, *, deadline_s: float = 15.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"not within {deadline_s} s: {what}"
        await asyncio.sleep(0.05)


def mark() -> str:
    """A number of seconds for `sleep` that no other process has."""
    return f"{3000 + secrets.randbelow(1000)}.{secrets.randbelow(10**9):09d}"


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
async def test_nothing_a_command_started_outlives_it(box, stays):
    sleep = mark()
    result = await box.exec(["python3", "-c", ESCAPE, sleep, stays], timeout_s=2)
    assert result.stdout == b"away\n"
    assert result.timed_out == (stays == "60")
    assert result.exit_code == (None if result.timed_out else 0)
    assert not running(sleep)
    assert (await sh(box, "ps -e --no-headers | wc -l")).stdout.strip() == b"4"  # the runner, sh, ps, wc


async def test_a_fork_bomb_leaves_the_box_answering(box):
    began = time.monotonic()
    result = await sh(box, "f() { f | f & }; f; sleep 60", timeout_s=2)
    assert result.timed_out or result.exit_code != 0
    await python(box, "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", timeout_s=2)
    assert (await sh(box, "echo fine")).stdout == b"fine\n"
    assert time.monotonic() - began < 30


async def test_zombies_do_not_eat_the_process_limit(backend):
    box = await backend.start(BoxSpec(limits=Limits(pids=24)))
    leave_orphans = "import os\nfor _ in range(10):\n  if os.fork() == 0:\n    os.fork(); os._exit(0)"
    for _ in range(8):
        assert (await python(box, leave_orphans)).exit_code == 0
    crowd = await python(box, "import os, time\nfor _ in range(60):\n  if os.fork() == 0: time.sleep(30); os._exit(0)")
    assert b"BlockingIOError" in crowd.stderr
    assert (await sh(box, "echo fine")).stdout == b"fine\n"
    await box.close()


async def test_a_memory_hog_dies_and_its_box_does_not(backend):
    box = await backend.start(BoxSpec(limits=Limits(memory_mb=128, workdir_mb=16)))
    result = await python(box, "x = []\nwhile True: x.append(bytearray(1 << 20))")
    assert result.exit_code == -signal.SIGKILL
    assert (await sh(box, "echo fine")).stdout == b"fine\n"
    await box.close()


async def test_disks_are_as_large_as_said(box):
    for folder in ("/testbed", "/tmp", "/home/agent", "/dev/shm"):
        result = await sh(box, f"head -c 400000000 /dev/zero > {folder}/fill; rm -f {folder}/fill")
        assert b"No space left" in result.stderr, folder


async def test_there_is_no_network(box):
    script = "import socket; print([name for _, name in socket.if_nameindex()]); socket.create_connection(('192.0.2.1', 80), 3)"
    result = await python(box, script)
    assert b"['lo'" in result.stdout
    assert b"eth" not in result.stdout
    assert b"unreachable" in result.stderr


async def test_the_hosts_files_are_not_there_and_the_root_cannot_be_written(box, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("host")
    secret.chmod(0o644)
    assert (await sh(box, f"cat {secret}")).exit_code == 1
    assert (await sh(box, "cat /etc/shadow")).exit_code == 1
    assert b"root:" not in (await sh(box, "cat /proc/1/root/etc/shadow")).stdout
    for path in ("/x", "/usr/bin/x", "/etc/passwd", "/dev/x", "/proc/sys/kernel/hostname", "/run/x"):
        assert (await sh(box, f"echo x >> {path}")).exit_code != 0, path
    assert (await sh(box, "mknod /tmp/disk b 8 0")).exit_code != 0


async def test_rights_cannot_be_won(box):
    status = (await sh(box, "grep -E 'Cap(Inh|Prm|Eff|Amb)|NoNewPrivs' /proc/self/status; id -u")).stdout.split()
    assert status[1::2][:4] == [b"0000000000000000"] * 4
    assert status[-3:] == [b"NoNewPrivs:", b"1", b"1000"]
    assert (await sh(box, "unshare --user --map-root-user true")).exit_code != 0
    assert (await sh(box, "mount -t tmpfs none /tmp")).exit_code != 0


TOUCH_PID_1 = """
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
print("trace", libc.ptrace(16, 1, 0, 0))  # PTRACE_ATTACH
print("seize", libc.ptrace(0x4206, 1, 0, 0))
for path in ("/proc/1/mem", "/proc/1/fd/0", "/proc/1/fd/1", "/proc/1/environ"):
    try:
        os.open(path, os.O_WRONLY)
        print("opened", path)
    except OSError:
        pass
for number in range(1, 65):
    try:
        os.kill(1, number)
    except OSError:
        pass
"""


async def test_the_runner_cannot_be_traced_written_to_or_signalled(box):
    result = await python(box, TOUCH_PID_1)
    assert result.stdout == b"trace -1\nseize -1\n"
    assert (await sh(box, "echo fine")).stdout == b"fine\n"


async def test_boxes_do_not_see_each_other(backend):
    first, second = await asyncio.gather(backend.start(BoxSpec(files={"a": b"1"})), backend.start(BoxSpec()))
    sleep = mark()
    busy = asyncio.ensure_future(first.exec(["sleep", sleep], timeout_s=60))
    await until(lambda: running(sleep), "the command runs")
    assert sleep.encode() not in (await sh(second, "ps -ef; ls -la /testbed /tmp")).stdout
    assert await second.snapshot() == {}
    await second.close()
    busy.cancel()
    await first.close()


async def test_closing_kills_what_runs_and_the_waiting_caller_is_told(box):
    sleep = mark()
    busy = asyncio.ensure_future(box.exec(["sleep", sleep], timeout_s=60))
    await until(lambda: running(sleep), "the command runs")
    await box.close()
    assert not running(sleep)
    with pytest.raises(SandboxError, match="it was closed"):
        await busy


async def test_a_cancelled_call_ends_the_box(box):
    sleep = mark()
    busy = asyncio.ensure_future(box.exec(["sleep", sleep], timeout_s=60))
    await until(lambda: running(sleep), "the command runs")
    busy.cancel()
    with pytest.raises(asyncio.CancelledError):
        await busy
    assert not running(sleep)
    with pytest.raises(SandboxError, match="cancelled"):
        await sh(box, "true")


async def test_a_box_ends_with_its_lease(backend):
    box = await backend.start(BoxSpec(limits=Limits(lease_s=2)))
    sleep = mark()
    with pytest.raises(SandboxError, match="lease of 2 s ended"):
        await box.exec(["sleep", sleep], timeout_s=60)
    assert not running(sleep)
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
        await until(lambda: running(sleep), "the box runs", deadline_s=60)
    finally:
        controller.send_signal(signal.SIGKILL)
        await controller.wait()
    await until(lambda: not running(sleep), "the box is gone")
    assert not running(sleep)
