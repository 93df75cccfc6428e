"""The controller's end: stdin and stdout of PID 1."""

import json
import os
import select
import time
from collections.abc import Iterator
from typing import Any

from sandboxes.backends.runner.background import Background
from sandboxes.backends.runner.common import CHUNK, LONGEST_WAIT_S


class Channel:
    """Messages in and out. While it waits for one, background processes are listened to."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.lease_end = time.monotonic() + 60.0  # until `hello` says otherwise
        self.background = Background()

    def left(self) -> float:
        return max(0.0, self.lease_end - time.monotonic())

    def _fill(self) -> None:
        """Wait until something happens, and take it."""
        poll = select.poll()
        for descriptor in (0, *self.background.descriptors()):
            poll.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(min(self.left(), LONGEST_WAIT_S) * 1000)]
        if not self.left():
            os._exit(0)  # the lease is over: the kernel kills the rest of the box
        for descriptor in ready:
            if descriptor:
                self.background.attend(descriptor)
        if 0 in ready:
            data = os.read(0, CHUNK)
            if not data:
                os._exit(0)  # the controller is gone
            self.buffer += data

    def line(self) -> bytes:
        start = 0
        while (end := self.buffer.find(b"\n", start)) < 0:
            start = len(self.buffer)
            self._fill()
            self.background.sweep()
        taken = bytes(self.buffer[:end])
        del self.buffer[: end + 1]
        return taken

    def chunks(self, size: int) -> Iterator[bytes]:
        """The next `size` bytes, piece by piece. Must be run to its end."""
        while size:
            while not self.buffer:
                self._fill()
            piece = bytes(self.buffer[:size])
            del self.buffer[: len(piece)]
            size -= len(piece)
            yield piece

    def reply(self, message: dict[str, Any], payload: bytes = b"") -> None:
        message.setdefault("payload", len(payload))
        self.send(json.dumps(message).encode() + b"\n" + payload)

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]
