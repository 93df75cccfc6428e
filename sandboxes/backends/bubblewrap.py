"""Boxes without a daemon: bubblewrap, the runner as PID 1 inside, a control group around it."""

import asyncio
import os
import shutil
from collections.abc import Callable
from contextlib import suppress

from sandboxes.backends import cgroup, images, piped
from sandboxes.backends.base import GATEWAY_FOLDER, BackendUnavailable, BoxSpec, RootFilesystem, SandboxError
from sandboxes.backends.client import LINE_LIMIT, RunnerBox, gateway_folder, runner_command
from sandboxes.backends.piped import Piped

END_TIMEOUT_S = 10.0
# Without setpriv the box's uid 1000 would be the host's root.
AS_AGENT = ["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups", "--no-new-privs"]
JOIN = 'while [ "$1" != -- ]; do echo $$ > "$1" || exit 125; shift; done; shift; exec "$@"'


class Bubblewrap:
    """A backend. Raises BackendUnavailable where bubblewrap or a control group cannot be had."""

    name = "bubblewrap"

    def __init__(self, *, progress: Callable[[str], None] = images.silent) -> None:
        if shutil.which("bwrap") is None:
            raise BackendUnavailable("bubblewrap is not installed: apt-get install bubblewrap")
        self._progress = progress
        try:
            self._groups = cgroup.parents()
        except BackendUnavailable:
            if os.environ.get("LAKELOOP_ALLOW_NO_CGROUP") != "1":
                raise
            self._groups = []
        self._root: RootFilesystem | None = None

    def prepare(self) -> None:
        """Make the root file system, if it is not there. Blocks."""
        self._root = images.root_filesystem(self._progress)

    async def start(self, spec: BoxSpec) -> RunnerBox:
        """A box that answers, with the work tree in place."""
        if self._root is None and spec.image is None:
            await asyncio.to_thread(self.prepare)
        root = spec.image or str(self._root.path if self._root else "")
        group = cgroup.create(self._groups, spec.limits)
        try:
            command = ("/bin/sh", "-c", JOIN, "box", *group.procs, "--", *_command(root, spec))
            process = await piped.start(command, {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, limit=LINE_LIMIT)
            box = _box(process, group, spec)
        except BaseException as error:  # also where the start is cancelled: the group would stay until its lease ends
            await group.remove()
            if isinstance(error, OSError):
                raise SandboxError(f"a bubblewrap box cannot be started: {error}") from error
            raise
        try:
            await box.prepare()
        except BaseException:  # a start that was cancelled leaves no box either
            await box.close()
            raise
        return box


def _box(process: Piped, group: cgroup.Group, spec: BoxSpec) -> RunnerBox:
    errors = process.stderr

    async def end() -> None:
        lease.cancel()
        _kill(process)
        try:
            await asyncio.wait_for(process.wait(), END_TIMEOUT_S)
        finally:  # an event loop that ends cancels this too
            await group.remove()

    async def why_gone() -> str:
        with suppress(TimeoutError):  # the end of its output comes a moment before its own
            await asyncio.wait_for(process.wait(), 2.0)
        code = process.returncode
        killed = group.oom_kills()
        said = (await errors.read(4096)).decode(errors="replace").strip()
        return f"bubblewrap ended with status {code}, {killed} processes killed for memory. {said}".strip()

    box = RunnerBox(process.stdout, process.stdin, spec, end=end, why_gone=why_gone)
    lease = asyncio.get_running_loop().call_later(spec.limits.lease_s, _kill, process)
    return box


def _kill(process: Piped) -> None:
    if process.returncode is None:
        process.kill()  # --die-with-parent takes the rest along


def _command(root: str, spec: BoxSpec) -> list[str]:
    limits, megabyte = spec.limits, 1 << 20
    shown = [str(gateway_folder(spec.gateway)), GATEWAY_FOLDER] if spec.gateway else []
    command = [
        *("bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"),
        *("--as-pid-1", "--uid", "1000", "--gid", "1000", "--hostname", "box"),
        *("--ro-bind", root, "/", "--proc", "/proc", "--dev", "/dev"),
        *("--remount-ro", "/dev", "--size", str(16 * megabyte), "--tmpfs", "/dev/shm"),  # noqa: S108 - the box's own
        *("--size", str(64 * megabyte), "--tmpfs", "/tmp"),  # noqa: S108 - the box's own
        *("--size", str(16 * megabyte), "--tmpfs", "/home/agent"),
        *("--size", str(limits.workdir_mb * megabyte), "--tmpfs", "/testbed"),
        *(["--tmpfs", "/run", "--ro-bind", *shown, "--remount-ro", "/run"] if shown else []),
        *("--chdir", "/testbed", "--clearenv", "--setenv", "PATH", "/usr/bin:/bin", "--cap-drop", "ALL"),
        *runner_command(),
    ]
    return [*AS_AGENT, *command] if os.geteuid() == 0 else command
