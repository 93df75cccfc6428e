"""Inside a box: what connects to a port of the box's loopback is passed on to the gateway's socket, byte for byte.

Self-contained (standard library only): the controller hands this text to the runner, which runs it in a process of its own
beside each command. One process and no threads, so that it costs the box one of its processes, however many connections.
"""

import contextlib
import select
import socket

CHUNK = 1 << 16
BUFFER = 1 << 18  # bytes held per direction; then the sender waits
MOST = 64  # connections at once; more wait to be accepted


class Side:
    """One end of a connection that is passed on."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.other = self
        self.outgoing = bytearray()
        self.said_all = False  # it sends no more
        end.setblocking(False)

    def wants(self) -> int:
        reads = not self.said_all and len(self.other.outgoing) < BUFFER
        return (select.POLLIN if reads else 0) | (select.POLLOUT if self.outgoing else 0)

    def read(self) -> None:
        data = self.end.recv(CHUNK)
        self.other.outgoing += data
        if not data:
            self.said_all = True
            self.other.finish()

    def write(self) -> None:
        del self.outgoing[: self.end.send(self.outgoing)]
        self.finish()

    def finish(self) -> None:
        """Tell this end that the other one has said all, once it has been passed on."""
        if self.other.said_all and not self.outgoing:
            with contextlib.suppress(OSError):
                self.end.shutdown(socket.SHUT_WR)

    def over(self) -> bool:
        return self.said_all and self.other.said_all and not self.outgoing and not self.other.outgoing


def serve(listener: socket.socket, path: str) -> None:
    """Pass on what `listener` accepts, for ever."""
    sides: dict[int, Side] = {}
    listener.setblocking(False)
    while True:
        poll = select.poll()
        if len(sides) < 2 * MOST:
            poll.register(listener, select.POLLIN)
        for descriptor, side in sides.items():
            poll.register(descriptor, side.wants())
        for descriptor, happened in poll.poll():
            if descriptor == listener.fileno():
                accept(listener, path, sides)
            elif descriptor in sides:  # its other side may have ended just now
                attend(sides[descriptor], happened, sides)


def accept(listener: socket.socket, path: str, sides: dict[int, Side]) -> None:
    with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
        near = listener.accept()[0]
        far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            far.connect(path)
        except OSError:  # the gateway is away: the client is told by the end of its connection, and may try again
            near.close()
            far.close()
            return
        one, two = Side(near), Side(far)
        one.other, two.other = two, one
        sides.update({near.fileno(): one, far.fileno(): two})


def attend(side: Side, happened: int, sides: dict[int, Side]) -> None:
    try:
        if happened & (select.POLLIN | select.POLLHUP) and side.wants() & select.POLLIN:
            side.read()
        if happened & select.POLLOUT:
            side.write()
        broken = bool(happened & select.POLLERR) or (bool(happened & select.POLLHUP) and side.said_all)
    except BlockingIOError:
        return
    except OSError:
        broken = True
    if broken or side.over():
        for one in (side, side.other):
            del sides[one.end.fileno()]
            one.end.close()
