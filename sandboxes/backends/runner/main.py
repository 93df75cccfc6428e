"""The loop: one request, its reply, the next one."""

import contextlib
import json
import os
import resource
import signal
import sys
import time
from typing import Any

from sandboxes.backends.runner.background import Process
from sandboxes.backends.runner.channel import Channel
from sandboxes.backends.runner.command import execute
from sandboxes.backends.runner.common import PR_SET_DUMPABLE, Refused, libc
from sandboxes.backends.runner.files import read, snapshot, write
from sandboxes.backends.runner.gateway import Forward
from sandboxes.backends.runner.output import payload
from sandboxes.backends.runner.processes import be_ready, filter_calls


def serve(channel: Channel, request: dict[str, Any]) -> None:
    op, background = request["op"], channel.background
    if op == "exec":
        execute(channel, request, b"".join(channel.chunks(request["payload"])))
    elif op == "write":
        write(channel, request["files"])
    elif op == "read":
        read(channel, request["path"], request["limit"])
    elif op == "snapshot":
        snapshot(channel, request["limit"])
    elif op == "start":
        channel.reply({"ok": True, "number": background.start(request)})
    elif op == "processes":
        background.settle()
        channel.reply({"ok": True, "processes": [process.told() for process in background.processes.values()]})
    elif op == "output":
        background.settle()
        say(channel, background.find(request["number"]))
    elif op == "stop":
        say(channel, background.stop(request["number"]))
    elif op == "lease":
        channel.lease_end = time.monotonic() + request["lease_s"]
        channel.reply({"ok": True})
    elif op == "hello":
        channel.lease_end = time.monotonic() + request["lease_s"]
        filter_calls(request["filters"])
        background.forward = Forward(request["forward"]) if request["forward"] else None
        channel.reply({"ok": True})
    else:
        raise Refused(f"unknown operation {op!r}")


def say(channel: Channel, process: Process) -> None:
    """What a background process has said since the last time."""
    sizes = {"stdout": process.out.told(), "stderr": process.err.told()}
    channel.reply({"ok": True, **process.told(), **sizes}, payload(process.out, process.err))
    process.out.empty()
    process.err.empty()


def main() -> None:
    if os.getpid() != 1:
        sys.exit("the runner must be PID 1 of a box: it kills every other process it can see")
    # What the controller ignores or blocks is nothing to us; and without a handler no signal from inside reaches PID 1.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    be_ready()
    libc.prctl(PR_SET_DUMPABLE, 0)  # nobody may trace us or open our files in /proc, not even with our uid
    with contextlib.suppress(ValueError):  # where it is 0 for good already
        # At 0 a `core_pattern` that is a program is started all the same, by the host's root; not at 1.
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    channel = Channel()
    while True:
        request = json.loads(channel.line())
        try:
            serve(channel, request)
        except FileNotFoundError as error:
            channel.reply({"ok": False, "kind": "missing", "error": str(error)})
        except (Refused, OSError, RecursionError, ValueError) as error:  # ValueError: no name for a file
            channel.reply({"ok": False, "kind": "refused", "error": str(error)})
