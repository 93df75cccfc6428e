"""One command, from its start to the death of all that it started."""

import os
import select
import time
from typing import Any

from sandboxes.backends.runner.channel import Channel
from sandboxes.backends.runner.common import LONGEST_WAIT_S
from sandboxes.backends.runner.output import Capture, payload
from sandboxes.backends.runner.processes import Started, clear


def execute(channel: Channel, request: dict[str, Any], stdin: bytes) -> None:
    """Run it to its end, its deadline, or until it has been silent for too long; whatever it was, it is gone when we reply."""
    began = time.monotonic()
    if channel.background.forward:
        channel.background.forward.start()  # it ends with the command, as all that runs here
    command = Started(request, alone=channel.background.none_alive())
    out, err = Capture(request["output_bytes"]), Capture(request["output_bytes"])
    attended = Attended(channel, command.pid, {command.stdout: out, command.stderr: err}, command.stdin, stdin)
    try:
        stopped_by = attended.run(began + request["timeout_s"], request["silence_s"])
    finally:
        clear(channel.background.spared())
        channel.background.settle()
    for descriptor, capture in ((command.stdout, out), (command.stderr, err)):
        capture.finish(descriptor)
    exit_code = command.exit_code(err)
    channel.reply(
        {
            "ok": True,
            "exit_code": None if stopped_by else exit_code,
            "stopped_by": stopped_by,
            "stdout": out.told(),
            "stderr": err.told(),
            "duration_s": time.monotonic() - began,
        },
        payload(out, err),
    )


class Attended:
    """A running command and its streams."""

    def __init__(self, channel: Channel, child: int, streams: dict[int, Capture], stdin_fd: int, stdin: bytes) -> None:
        self.channel = channel
        self.streams = streams
        self.stdin_fd = stdin_fd
        self.pending: memoryview | None = memoryview(stdin)
        self.exited = os.pidfd_open(child)
        self.poll = select.poll()
        for descriptor in (self.exited, *streams, *channel.background.descriptors()):
            self.poll.register(descriptor, select.POLLIN)
        self.poll.register(0, select.POLLRDHUP)  # POLLHUP and POLLERR are always told
        if stdin:
            os.set_blocking(stdin_fd, False)
            self.poll.register(stdin_fd, select.POLLOUT)
        else:
            self._close_stdin()

    def run(self, deadline: float, silence_s: float | None) -> str | None:
        """Serve the streams until the command ends; what stopped it, where something did: `deadline` or `silence`."""
        patience = float("inf") if silence_s is None else silence_s
        heard = time.monotonic()
        try:
            while True:
                now = time.monotonic()
                if not self.channel.left():
                    os._exit(0)  # the lease is over, which is not the command's failure
                if now >= min(deadline, heard + patience):
                    return "deadline" if now >= deadline else "silence"
                left = min(deadline - now, heard + patience - now, self.channel.left(), LONGEST_WAIT_S)
                for descriptor, _ in self.poll.poll(left * 1000):
                    if descriptor == self.exited:
                        return None
                    if self._serve(descriptor):
                        heard = time.monotonic()
        finally:
            os.close(self.exited)
            self._close_stdin()

    def _serve(self, descriptor: int) -> bool:
        """Whether the command said something."""
        if descriptor == 0:
            os._exit(0)  # nobody is left to read the answer
        if descriptor == self.stdin_fd:
            self._feed()
        elif descriptor in self.streams:
            if self.streams[descriptor].drain(descriptor):
                return True
            self.poll.unregister(descriptor)
        else:
            known = self.channel.background.descriptors()
            self.channel.background.attend(descriptor)
            for over in set(known) - set(self.channel.background.descriptors()):
                self.poll.unregister(over)
        return False

    def _feed(self) -> None:
        """Write what fits. The command sees the end when all is written; that it does not read is its own affair."""
        try:
            if self.pending:
                self.pending = self.pending[os.write(self.stdin_fd, self.pending) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.pending = None
        if not self.pending:
            self.poll.unregister(self.stdin_fd)
            self._close_stdin()

    def _close_stdin(self) -> None:
        if self.stdin_fd >= 0:
            os.close(self.stdin_fd)
            self.stdin_fd = -1
