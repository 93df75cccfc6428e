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
from collections.abc import Collection
from typing import Any

from sandboxes.backends.runner.common import PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, ROOT, Refused, become_agent, libc

KILL_DEADLINE_S = 20.0
PATIENCE_S = 2.0  # for killing one by one, which a fork bomb may outrun
PAUSE_S = 0.0005
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
OPEN_FILES = 4096

awaited: set[int] = set()  # processes whose status somebody wants
calls = b""  # the system-call filter of commands, where the box has none
statuses: dict[int, int] = {}  # of those that have ended, as exit codes: minus the signal where one ended it


def filter_calls(programs: dict[str, str]) -> None:
    """From now on commands have the filter for this machine, if there is one."""
    global calls
    calls = binascii.a2b_base64(programs.get(os.uname().machine, ""))


def _filter_myself() -> None:
    text = ctypes.create_string_buffer(calls, len(calls))

    class Program(ctypes.Structure):  # struct sock_fprog
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    given = Program(len(calls) // 8, ctypes.addressof(text))
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(given), 0, 0):
        raise OSError(ctypes.get_errno(), "no system-call filter")


def spawn(request: dict[str, Any], stdin: int, stdout: int, stderr: int, *, background: bool = False) -> int:
    """Run `argv` in `cwd` with `env` as the agent, in a session of its own. Returns its process id."""
    try:
        child = os.fork()
    except BlockingIOError:
        raise Refused("background processes leave no room under the box's process limit: stop one") from None
    if child == 0:
        try:
            _become(request, (stdin, stdout, stderr), background)
        finally:
            os._exit(126)
    awaited.add(child)
    return child


def _become(request: dict[str, Any], streams: tuple[int, int, int], background: bool) -> None:
    name = request["argv"][0]
    try:
        if not ROOT:
            libc.prctl(PR_SET_DUMPABLE, 1)  # else /proc/self would not be the child's own
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")  # out of memory ends a command, not the box
        os.setsid()
        if background:
            libc.prctl(PR_SET_CHILD_SUBREAPER, 1)  # so that its orphans stay its own, by which we know them
        for target, source in enumerate(streams):
            os.dup2(source, target)
        become_agent()
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
        os.umask(0o022)
        try:
            os.chdir(request["cwd"])
        except (OSError, ValueError) as error:
            reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error)
            os.write(2, f"{name}: cannot run in {request['cwd']!r}: {reason}\n".encode(errors="backslashreplace"))
            os._exit(126)
        if calls:
            _filter_myself()
        _run(name, request["argv"], request["env"])
    except OSError as error:
        os.write(2, f"{name}: cannot run: {error}\n".encode(errors="surrogateescape"))
        os._exit(127 if error.errno == errno.ENOENT else 126)


def _run(name: str, argv: list[str], env: dict[str, str]) -> None:
    """`os.execvpe`, which would import `warnings` in every child: a third of the time that a short command takes."""
    refused: OSError | None = None
    places = [""] if "/" in name else [f"{folder or '.'}/" for folder in env.get("PATH", os.defpath).split(":")]
    for place in places:
        try:
            os.execve(place + name, argv, env)  # noqa: S606 - running what is asked is the job
        except (FileNotFoundError, NotADirectoryError) as error:
            missing = error
        except OSError as error:
            refused = refused or error
    raise refused or missing


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
