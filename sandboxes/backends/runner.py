"""PID 1 of every box: runs commands and touches files on the controller's behalf.

Self-contained (standard library only): the controller hands this text to the box's Python. A message is one JSON
line, followed by as many raw bytes as its `payload` says; requests come on stdin, each has one reply on stdout. Where
it is root, commands and file operations run as uid 1000. Nothing an earlier command started is alive when a request is
served, so checking a path and then using it cannot be raced. End of stdin or of the lease ends the box.
"""

# ruff: noqa: PTH101, PTH103, PTH108, PTH114, PTH116, PTH120, PTH123 - a box starts sooner without pathlib

import contextlib
import ctypes
import errno
import json
import os
import resource
import select
import signal
import stat
import sys
import time
from collections.abc import Iterator
from typing import Any

WORKDIR = "/testbed"
AGENT = 1000
CHUNK = 1 << 16
MAX_FILES = 50_000
PR_SET_DUMPABLE = 4
KILL_DEADLINE_S = 20.0

libc = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """The request asks for what a box does not give."""


class Forward:
    """The way to the gateway, the only one out of the box. The port is ours alone: no command can take it."""

    def __init__(self, told: dict[str, Any]) -> None:
        import socket  # noqa: PLC0415 - boxes without a gateway start sooner without it

        namespace: dict[str, Any] = {"__name__": "forward"}
        exec(compile(told["program"], "forward.py", "exec"), namespace)  # noqa: S102 - the controller's own text
        self.serve = namespace["serve"]
        self.path: str = told["socket"]
        child = os.fork()
        if child == 0:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
                os._exit(self.become() or trial.connect_ex(self.path))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code:
            raise Refused(
                f"the gateway's socket cannot be reached from this box ({os.strerror(code)}): is the gateway up? One that "
                f"runs as root shares its socket with bubblewrap's boxes when it is started with --socket-group {AGENT}"
            )
        self.listener = socket.create_server(("127.0.0.1", told["port"]), backlog=64)

    def become(self) -> int:
        """Be the socket's owner where we are root, whose rights over files a box does not have; the error number, or 0."""
        try:
            owner = os.stat(os.path.dirname(self.path))
            if ROOT:
                os.setgroups([])
                os.setresgid(owner.st_gid, owner.st_gid, owner.st_gid)
                os.setresuid(owner.st_uid, owner.st_uid, owner.st_uid)
        except OSError as error:
            return error.errno or 1
        return 0

    def start(self) -> None:
        """Pass on, in a process of its own, until it is killed."""
        if os.fork() == 0:
            try:
                nothing = os.open(os.devnull, os.O_RDWR)
                for descriptor in (0, 1, 2):
                    os.dup2(nothing, descriptor)
                os.setsid()
                if not self.become():
                    self.serve(self.listener, self.path)
            finally:
                os._exit(1)


class Channel:
    """The controller's end: stdin and stdout of PID 1."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.lease_end = time.monotonic() + 60.0  # until `hello` says otherwise
        self.forward: Forward | None = None

    def left(self) -> float:
        return max(0.0, self.lease_end - time.monotonic())

    def _fill(self) -> None:
        ready = select.select([0], [], [], self.left())[0]
        data = os.read(0, CHUNK) if ready else b""
        if not data:
            os._exit(0)  # the controller is gone or the lease is over: the kernel kills the rest of the box
        self.buffer += data

    def line(self) -> bytes:
        start = 0
        while (end := self.buffer.find(b"\n", start)) < 0:
            start = len(self.buffer)
            self._fill()
        taken = bytes(self.buffer[:end])
        del self.buffer[: end + 1]
        return taken

    def chunks(self, size: int) -> Iterator[bytes]:
        """The next `size` bytes, piece by piece. Must be run to its end."""
        while size:
            if not self.buffer:
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


# Processes


def kill_all() -> None:
    """Kill every process of the box but this one, and reap until none is left."""
    if os.getpid() != 1:
        raise RuntimeError("the runner may only kill inside a box of its own")
    end = time.monotonic() + KILL_DEADLINE_S
    while True:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return  # orphans become our children, so no child means no process
        if time.monotonic() > end:
            os._exit(1)  # a process that cannot be killed: give up the box, not the promise
        time.sleep(0.0005)


def run_child(request: dict[str, Any], stdin: int, stdout: int, stderr: int) -> None:
    """In the forked child: become the agent and the command. Never returns."""
    try:
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")  # out of memory ends a command, not the box
        os.setsid()
        for source, target in ((stdin, 0), (stdout, 1), (stderr, 2)):
            os.dup2(source, target)
        if ROOT:
            os.setgroups([])
            os.setresgid(AGENT, AGENT, AGENT)
            os.setresuid(AGENT, AGENT, AGENT)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.umask(0o022)
        os.chdir(request["cwd"])
        os.execvpe(request["argv"][0], request["argv"], request["env"])  # noqa: S606 - running what is asked is the job
    except OSError as error:
        os.write(2, f"{request['argv'][0]}: cannot run: {error}\n".encode())
        os._exit(127 if error.errno == errno.ENOENT else 126)
    finally:
        os._exit(126)


class Capture:
    """One output stream: the first `limit` bytes are kept, the rest counted."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.kept = bytearray()
        self.dropped = 0

    def drain(self, descriptor: int) -> bool:
        """Read once; False at the end of the stream."""
        data = os.read(descriptor, CHUNK)
        room = self.limit - len(self.kept)
        self.kept += data[:room]
        self.dropped += max(0, len(data) - room)
        return bool(data)


def execute(channel: Channel, request: dict[str, Any], stdin: bytes) -> None:
    began = time.monotonic()
    if channel.forward:
        channel.forward.start()  # it ends with the command, as all that runs here
    in_read, in_write = os.pipe2(os.O_CLOEXEC)
    out_read, out_write = os.pipe2(os.O_CLOEXEC)
    err_read, err_write = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        if not ROOT:
            libc.prctl(PR_SET_DUMPABLE, 1)  # else /proc/self would not be the child's own
        run_child(request, in_read, out_write, err_write)
    for descriptor in (in_read, out_write, err_write):
        os.close(descriptor)
    streams = {out_read: Capture(request["output_bytes"]), err_read: Capture(request["output_bytes"])}
    try:
        timed_out = attend(channel, child, streams, in_write, stdin, began + request["timeout_s"])
        status = None if timed_out else os.waitpid(child, 0)[1]
    finally:
        kill_all()
    for descriptor, capture in streams.items():  # every writer is dead: the pipes end
        while capture.drain(descriptor):
            pass
        os.close(descriptor)
    out, err = streams.values()
    channel.reply(
        {
            "ok": True,
            "exit_code": None if status is None else os.waitstatus_to_exitcode(status),
            "stdout": len(out.kept),
            "dropped": out.dropped + err.dropped,
            "duration_s": time.monotonic() - began,
        },
        bytes(out.kept + err.kept),
    )


def attend(
    channel: Channel, child: int, streams: dict[int, Capture], stdin_fd: int, stdin: bytes, deadline: float
) -> bool:
    """Serve the child's streams until it ends (False) or its deadline has passed (True). Closes `stdin_fd`."""
    exited = os.pidfd_open(child)
    poll = select.poll()
    for descriptor in (exited, *streams):
        poll.register(descriptor, select.POLLIN)
    poll.register(0, select.POLLRDHUP)  # POLLHUP and POLLERR are always told
    os.set_blocking(stdin_fd, False)
    pending: memoryview | None = memoryview(stdin)
    poll.register(stdin_fd, select.POLLOUT)
    try:
        while (left := min(deadline - time.monotonic(), channel.left())) > 0:
            for descriptor, _ in poll.poll(left * 1000):
                if descriptor == exited:
                    return False
                if descriptor == 0:
                    os._exit(0)  # nobody is left to read the answer
                if descriptor == stdin_fd:
                    pending = feed(stdin_fd, pending)
                    if not pending:
                        poll.unregister(stdin_fd)
                        os.close(stdin_fd)
                        pending = None
                elif not streams[descriptor].drain(descriptor):
                    poll.unregister(descriptor)
        if not channel.left():
            os._exit(0)  # the lease is over, which is not the command's failure
        return True
    finally:
        os.close(exited)
        if pending is not None:
            os.close(stdin_fd)


def feed(descriptor: int, data: memoryview | None) -> memoryview | None:
    """Write what fits; None when nothing is left to write or nobody reads."""
    if not data:
        return None
    try:
        return data[os.write(descriptor, data) :] or None
    except BlockingIOError:
        return data
    except BrokenPipeError:
        return None


# Files: always with the agent's rights


@contextlib.contextmanager
def as_agent() -> Iterator[None]:
    """The agent's file rights; our real uid stays root, so no process of the agent's could touch us even then."""
    if ROOT:
        os.setegid(AGENT)
        os.seteuid(AGENT)
    try:
        yield
    finally:
        if ROOT:
            os.seteuid(0)
            os.setegid(0)


def inside(path: str) -> str:
    """The absolute path of `path` below the work tree, none of whose parts may be a link. Refused otherwise."""
    if path.startswith(WORKDIR + "/"):
        path = path[len(WORKDIR) + 1 :]
    parts = path.split("/")
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise Refused(f"{path!r} is not a plain path below {WORKDIR}")
    current = WORKDIR
    for part in parts:
        current += "/" + part
        if os.path.islink(current):
            raise Refused(f"{path!r} goes through a link")
    return current


def read(channel: Channel, path: str, limit: int) -> None:
    with as_agent():
        full = inside(path)
        found = os.lstat(full)
        if not stat.S_ISREG(found.st_mode):
            raise Refused(f"{path!r} is not a regular file")
        if found.st_size > limit:
            raise Refused(f"{path!r} has {found.st_size} bytes, more than the limit of {limit}")
        with open_regular(full) as file:
            content = file.read(limit)
    channel.reply({"ok": True}, content)


def open_regular(path: str) -> Any:
    """Open for reading. The owner's rights cannot be used to hide a file from us: they are restored."""
    try:
        return open(path, "rb", buffering=0)
    except PermissionError:
        os.chmod(path, 0o644)
        return open(path, "rb", buffering=0)


def write(channel: Channel, files: list[tuple[str, int]]) -> None:
    """Receive files one after another. After the first failure the rest is received and thrown away."""
    failure: Exception | None = None
    with as_agent():
        for path, size in files:
            pieces = channel.chunks(size)
            if failure is None:
                try:
                    put(path, pieces)
                except (OSError, Refused) as error:
                    failure = error
            for _ in pieces:
                pass
    if failure is not None:
        raise failure
    channel.reply({"ok": True})


def put(path: str, pieces: Iterator[bytes]) -> None:
    full = inside(path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(full)  # a new file: old rights and hard links are nobody's business
    with open(full, "xb", buffering=0) as file:
        for piece in pieces:
            view = memoryview(piece)
            while view:
                view = view[file.write(view) :]


def walk(folder: str) -> Iterator[tuple[str, int]]:
    """(path, size) of every regular file below; links, devices, FIFOs and names that are not UTF-8 are left out."""
    try:
        entries = list(os.scandir(folder))
    except PermissionError:
        os.chmod(folder, 0o755)  # noqa: S103 - nobody else is in the box
        entries = list(os.scandir(folder))
    for entry in sorted(entries, key=lambda entry: entry.name):
        try:
            entry.name.encode()
        except UnicodeEncodeError:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from walk(entry.path)
        elif entry.is_file(follow_symlinks=False):
            yield entry.path, entry.stat(follow_symlinks=False).st_size


def snapshot(channel: Channel, limit: int) -> None:
    with as_agent():
        files: list[tuple[str, int]] = []
        total = 0
        for path, size in walk(WORKDIR):
            files.append((path, size))
            total += size
            if total > limit or len(files) > MAX_FILES:
                raise Refused(f"the work tree claims more than {limit} bytes or {MAX_FILES} files")
        names = [(path[len(WORKDIR) + 1 :], size) for path, size in files]
        channel.reply({"ok": True, "files": names, "payload": total})
        for path, size in files:
            with open_regular(path) as file:
                while size:
                    piece = file.read(min(size, 1 << 20))
                    channel.send(piece)
                    size -= len(piece)


# The loop


def serve(channel: Channel, request: dict[str, Any]) -> None:
    op = request["op"]
    if op == "exec":
        execute(channel, request, b"".join(channel.chunks(request["payload"])))
    elif op == "write":
        write(channel, request["files"])
    elif op == "read":
        read(channel, request["path"], request["limit"])
    elif op == "snapshot":
        snapshot(channel, request["limit"])
    elif op == "hello":
        channel.lease_end = time.monotonic() + request["lease_s"]
        channel.forward = Forward(request["forward"]) if request["forward"] else None
        channel.reply({"ok": True})
    else:
        raise Refused(f"unknown operation {op!r}")


def main() -> None:
    if os.getpid() != 1:
        sys.exit("the runner must be PID 1 of a box: it kills every other process it can see")
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # signals without a handler do not reach PID 1 from inside
    libc.prctl(PR_SET_DUMPABLE, 0)  # nobody may trace us or open our files in /proc, not even with our uid
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    channel = Channel()
    while True:
        request = json.loads(channel.line())
        try:
            serve(channel, request)
        except FileNotFoundError as error:
            channel.reply({"ok": False, "kind": "missing", "error": str(error)})
        except (Refused, OSError, RecursionError) as error:
            channel.reply({"ok": False, "kind": "refused", "error": str(error)})


ROOT = os.geteuid() == 0

if __name__ == "__main__":
    main()
