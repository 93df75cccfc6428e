"""Starting a command as the agent, and making sure that nothing of it is left."""

# ruff: noqa: PTH123 - a box starts sooner without pathlib
import binascii
import contextlib
import ctypes
import errno
import os
import resource
import signal
import time
from _posixsubprocess import fork_exec
from collections.abc import Collection, Iterator
from typing import Any

from sandboxes.backends.runner.common import PR_SET_CHILD_SUBREAPER, ROOT, Refused, libc, wholly_agent
from sandboxes.backends.runner.output import Capture, pipes

KILL_DEADLINE_S = 20.0
PATIENCE_S = 2.0  # for killing one by one, which a fork bomb may outrun
PAUSE_S = 0.0005
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
OPEN_FILES = 4096
MESSAGE_QUEUES = 819_200  # bytes: the kernel's default, whatever our controller or the engine has

awaited: set[int] = set()  # processes whose status somebody wants
statuses: dict[int, int] = {}  # of those that have ended, as exit codes: minus the signal where one ended it
oom_score = -1  # our own /proc/self/oom_score_adj


def be_ready() -> None:
    """Have what a command is to inherit. To be called while we may open our own files in /proc."""
    global oom_score
    oom_score = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    with contextlib.suppress(ValueError):  # where it is lower for good already
        resource.setrlimit(resource.RLIMIT_MSGQUEUE, (MESSAGE_QUEUES, MESSAGE_QUEUES))
    if ROOT:
        os.setgroups([])


def filter_calls(programs: dict[str, str]) -> None:
    """From now on we, and so all commands, have the filter for this machine, if there is one."""
    calls = binascii.a2b_base64(programs.get(os.uname().machine, ""))
    if not calls:
        return
    text = ctypes.create_string_buffer(calls, len(calls))

    class Program(ctypes.Structure):  # struct sock_fprog
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    given = Program(len(calls) // 8, ctypes.addressof(text))
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(given), 0, 0):
        raise OSError(ctypes.get_errno(), "no system-call filter")


class Started:
    """A process of the agent's in a session of its own, that runs `argv` in `cwd` with `env`; our ends of its streams.

    `alone`: no other process of the agent's is in the box. Only then may we wait for the exec as vfork(2) does, which is sooner
    there than fork(2): somebody could stop the child before it, and us with it.
    """

    def __init__(self, request: dict[str, Any], *, alone: bool = False, background: bool = False) -> None:
        self.name, self.cwd = request["argv"][0], request["cwd"]
        with pipes(4) as ends:
            (stdin, self.stdin), (self.stdout, stdout), (self.stderr, stderr), (self.failure, failure) = ends
            streams = (stdin, self.stdin, self.stdout, stdout, self.stderr, stderr, self.failure, failure)
            self.pid = _fork(request, streams, _keep_orphans if background else None, alone)
        for theirs in (stdin, stdout, stderr, failure):
            os.close(theirs)
        awaited.add(self.pid)

    def exit_code(self, errors: Capture) -> int:
        """Once it has ended. That it could not be run at all is said among its `errors`."""
        status = statuses.pop(self.pid, -signal.SIGKILL)
        told = os.read(self.failure, 4096).decode()  # as `subprocess` is told: kind, errno, whether before exec(2)
        os.close(self.failure)
        if not told:
            return status
        _, number, early = told.split(":")
        code = int(number, 16)
        where = f" in {self.cwd!r}" if early else ""
        errors.add(f"{self.name}: cannot run{where}: {os.strerror(code)}\n".encode(errors="backslashreplace"))
        return 127 if code == errno.ENOENT and not early else 126


# Read and write ends of stdin, stdout, stderr, and of why it could not be run.
Streams = tuple[int, int, int, int, int, int, int, int]


def _fork(request: dict[str, Any], streams: Streams, before_exec: Any, alone: bool) -> int:
    """What `subprocess` calls, less its Python, which takes as long as a short command: no line of Python runs in the child.

    The arguments are those of Python 3.11, which every box has: other people's images are given ours.
    """
    argv, env = request["argv"], request["env"]
    settings = [os.fsencode(f"{name}={value}") for name, value in env.items()]
    plain_signals, session, group = True, True, -1
    gid, groups, uid, umask = None, None, None, 0o022  # whoever we are
    try:
        with _first_out_of_memory(), wholly_agent():
            return fork_exec(
                *(argv, _places(argv[0], env), True, streams[-1:], _folder(request["cwd"]), settings, *streams),
                *(plain_signals, session, group, gid, groups, uid, umask, before_exec, alone),
            )
    except BlockingIOError:
        raise Refused("background processes leave no room under the box's process limit: stop one") from None


@contextlib.contextmanager
def _first_out_of_memory() -> Iterator[None]:
    """What is forked now is killed before the box is. It inherits that: by its own hand it would be later at its exec."""
    ours = os.pread(oom_score, 16, 0)
    os.pwrite(oom_score, b"1000", 0)
    try:
        yield
    finally:
        os.pwrite(oom_score, ours, 0)


def _keep_orphans() -> None:
    """In a background process: by being below it we know what it started."""
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)


def _places(name: str, env: dict[str, str]) -> list[bytes]:
    """Where to look for a program, as execvpe(3) does."""
    if "/" in name:
        return [os.fsencode(name)]
    return [os.fsencode(f"{folder or '.'}/{name}") for folder in env.get("PATH", os.defpath).split(":")]


def _folder(name: str) -> str:
    """The folder to run in; for a name that none can have the empty one, which the kernel does not find either."""
    try:
        return "" if b"\0" in os.fsencode(name) else name
    except UnicodeEncodeError:
        return ""


def reap() -> bool:
    """Take the status of whoever has ended; False where we have no child at all."""
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return True
            if pid in awaited:
                awaited.remove(pid)
                statuses[pid] = os.waitstatus_to_exitcode(status)
    except ChildProcessError:
        return False


def clear(spared: Collection[int] = ()) -> None:
    """Kill every process of the box but this one, `spared` and what descends from those, and reap until none is left.

    One by one cannot be sure to win against a fork bomb: where it does not within two seconds, nobody is spared.
    """
    end = time.monotonic() + PATIENCE_S
    quiet = 0
    while spared and quiet < 2:  # process ids may wrap while one look is taken, not while two are
        strangers, unsure = _strangers(spared)
        for pid in strangers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        quiet = 0 if strangers or unsure else quiet + 1
        reap()
        if time.monotonic() > end:
            spared = ()
    if not spared:
        _clear_all()


def _clear_all() -> None:
    if os.getpid() != 1:
        raise RuntimeError("the runner may only kill inside a box of its own")
    end = time.monotonic() + KILL_DEADLINE_S
    while True:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)  # all at once: no fork slips through
        if not reap():
            return  # orphans become our children, so no child means no process
        if time.monotonic() > end:
            os._exit(1)  # a process that cannot be killed: give up the box, not the promise
        time.sleep(PAUSE_S)


def _strangers(spared: Collection[int]) -> tuple[set[int], bool]:
    """Whose line of parents leads to us and not through `spared`; whether a line was changing while we looked."""
    reap()
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                parents[int(name)] = int(file.read(4096).rpartition(b")")[2].split()[1])
    strangers, unsure = set(), False
    for pid in parents:
        at = pid
        while at in parents and at != 1 and at not in spared:
            at = parents[at]
        if at == 1 and pid != 1:
            strangers.add(pid)
        unsure |= at not in parents
    return strangers, unsure
