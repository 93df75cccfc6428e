"""What a command says, in bounded memory."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from sandboxes.backends.runner.common import CHUNK

PIPE_BYTES = 1 << 20  # no pipe can be made to hold more without rights


@contextlib.contextmanager
def pipes(count: int) -> Iterator[list[tuple[int, int]]]:
    """(read, write) ends; closed again where what they are made for fails."""
    ends: list[tuple[int, int]] = []
    try:
        for _ in range(count):
            ends.append(os.pipe2(os.O_CLOEXEC))
        yield ends
    except BaseException:  # whatever it was, it goes on; the descriptors would be lost
        for pair in ends:
            for descriptor in pair:
                os.close(descriptor)
        raise


class Capture:
    """One output stream: its first and its last bytes are kept, half of `limit` each; what lies between is counted."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.empty()

    def empty(self) -> None:
        self.head, self.tail, self.dropped = bytearray(), bytearray(), 0

    def add(self, data: bytes) -> None:
        room = self.limit - self.limit // 2 - len(self.head)
        self.head += data[:room]
        self.tail += data[room:]
        if len(self.tail) > self.limit + CHUNK:  # not at each piece: every cut moves the rest
            self._cut()

    def _cut(self) -> None:
        over = max(0, len(self.tail) - self.limit // 2)
        del self.tail[:over]
        self.dropped += over

    def drain(self, descriptor: int) -> bool:
        """Read once; False at the end of the stream."""
        data = os.read(descriptor, CHUNK)
        self.add(data)
        return bool(data)

    def finish(self, descriptor: int) -> None:
        """Take what is there and close. Somebody else may still hold the other end, and write for ever: nobody waits for it."""
        os.set_blocking(descriptor, False)
        left = PIPE_BYTES
        try:
            while left > 0 and self.drain(descriptor):
                left -= CHUNK
        except BlockingIOError:
            pass
        os.close(descriptor)

    def told(self) -> dict[str, Any]:
        """How many bytes there are of what; they follow in this order."""
        self._cut()
        return {"head": len(self.head), "tail": len(self.tail), "dropped": self.dropped}


def payload(*captures: Capture) -> bytes:
    """The bytes of streams whose sizes were told."""
    return b"".join(bytes(capture.head + capture.tail) for capture in captures)
