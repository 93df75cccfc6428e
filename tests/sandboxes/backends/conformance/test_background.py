"""Background processes: on request they outlive their call, and nothing outlives them."""

import asyncio
from contextlib import suppress

import pytest

from sandboxes.backends.base import BoxSpec, Limits, SandboxError


async def sh(box, script: str, *, timeout_s: float = 20.0):
    return await box.exec(["sh", "-c", script], timeout_s=timeout_s)


async def said(box, number: int, what: bytes):
    """What it says until it has said this."""
    heard, end = b"", asyncio.get_running_loop().time() + 20
    while what not in heard:
        assert asyncio.get_running_loop().time() < end, heard
        heard += (await box.output(number)).stdout
    return heard


SERVER = """
import http.server
print("up", flush=True)
http.server.HTTPServer(("127.0.0.1", 8123), http.server.SimpleHTTPRequestHandler).serve_forever()
"""
ASK = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:8123/pkg/core.py').read().decode())"


async def test_a_server_answers_commands_until_it_is_stopped(box):
    number = await box.start(["python3", "-c", SERVER])
    await said(box, number, b"up\n")
    for _ in range(3):
        assert (await box.exec(["python3", "-c", ASK], timeout_s=20)).stdout == b"ONE = 1\n\n"
    [process] = await box.processes()
    assert (process.number, process.argv[0], process.exit_code) == (number, "python3", None)
    stopped = await box.stop(number)
    assert (stopped.exit_code, stopped.stderr.count(b"GET")) == (-9, 3)
    assert await box.processes() == []
    assert (await box.exec(["python3", "-c", ASK], timeout_s=20)).exit_code == 1


async def test_output_comes_once_and_is_cut_in_the_middle(box):
    number = await box.start(
        ["sh", "-c", "echo first; yes | head -c 5000000; echo last; echo error >&2; exec sleep 60"]
    )
    heard, dropped = b"", 0
    while not heard.endswith(b"last\n"):
        output = await box.output(number)
        heard, dropped = heard + output.stdout, dropped + output.dropped_bytes
    assert heard.startswith(b"first\ny\n")
    assert dropped == 0 or b"bytes left out" in heard
    assert (await box.output(number)).stdout == b""


async def test_its_end_is_told_and_takes_along_what_it_started(box):
    number = await box.start(["sh", "-c", "(setsid sleep 60 &) ; echo bye; exit 7"])
    while (await box.processes())[0].exit_code is None:
        pass
    output = await box.output(number)
    assert (output.exit_code, output.stdout) == (7, b"bye\n")
    assert b"sleep" not in (await sh(box, "ps -e -o comm=")).stdout
    missing = await box.start(["no-such-program"])
    while (await box.output(missing)).exit_code is None:
        pass
    assert [process.exit_code for process in await box.processes()] == [7, 127]


async def test_a_command_takes_its_own_along_and_leaves_background_processes(box):
    number = await box.start(["sh", "-c", "sleep 1001 & sleep 1002 & (setsid sleep 1003 &); wait"])
    await sh(box, "sleep 2001 & (setsid sleep 2002 &); setsid sh -c '(sleep 2003 &)'")
    await sh(box, "(setsid sleep 2004 &); sleep 20", timeout_s=0.5)
    left = (await sh(box, "ps -e -o args=")).stdout
    assert [name in left for name in (b"1001", b"1002", b"1003")] == [True] * 3
    assert b"sleep 20" not in left
    await box.stop(number)
    assert b"sleep" not in (await sh(box, "ps -e -o args= | grep -v ps")).stdout


async def test_a_fork_bomb_beside_it_is_killed_whatever_becomes_of_it(box):
    await box.start(["sleep", "1000"])
    bomb = "import os\nwhile True:\n  try:\n    if os.fork(): os._exit(0)\n    os.setsid()\n  except OSError: pass"
    await box.exec(["python3", "-c", bomb], timeout_s=1)
    await sh(box, "f() { f | f & }; f; sleep 60", timeout_s=1)
    left = (await sh(box, "ps -e -o comm= > /tmp/left; cat /tmp/left")).stdout.split()
    assert sorted(left) in ([b"ps", b"python3", b"sh"], [b"ps", b"python3", b"sh", b"sleep"])


async def test_there_are_sixteen_at_most_and_they_share_the_boxs_limits(backend):
    box = await backend.start(BoxSpec(limits=Limits(pids=24)))
    numbers = [await box.start(["sleep", "1000"]) for _ in range(16)]
    with pytest.raises(ValueError, match="16 background processes run already"):
        await box.start(["sleep", "1000"])
    crowd = "import os, time\nfor _ in range(24):\n  if os.fork() == 0: time.sleep(30); os._exit(0)"
    assert b"BlockingIOError" in (await box.exec(["python3", "-c", crowd], timeout_s=20)).stderr
    await box.stop(numbers[3])
    greedy = "import os, time\nwhile True:\n  try:\n    if os.fork() == 0: time.sleep(60)\n  except OSError: time.sleep(0.01)"
    number = await box.start(["python3", "-c", greedy])
    for _ in range(100):
        with suppress(ValueError):
            while (await box.exec(["true"], timeout_s=20)).exit_code == 0:
                pass
        with pytest.raises(ValueError, match="leave no room under the box's process limit"):
            await box.exec(["true"], timeout_s=20)
    await box.stop(number)
    assert (await box.exec(["true"], timeout_s=20)).exit_code == 0
    with pytest.raises(ValueError, match="no background process 4"):
        await box.output(4)
    await box.close()
    with pytest.raises(SandboxError, match="it was closed"):
        await box.processes()
