"""Boxes without a daemon: bubblewrap with a system-call filter, the runner as PID 1 inside, a control group around it."""

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from sandboxes.backends import cgroup, endings, images, piped, seccomp
from sandboxes.backends.base import GATEWAY_FOLDER, BackendUnavailable, BoxSpec, SandboxError
from sandboxes.backends.client import LINE_LIMIT, RunnerBox, ended, gateway_folder, runner_command
from sandboxes.backends.foreign import MOUNT, PYTHON, binds, in_folder
from sandboxes.backends.piped import Piped

END_TIMEOUT_S = 10.0
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
# Without setpriv the box's uid 1000 would be the host's root.
AS_AGENT = ["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups", "--no-new-privs"]
JOIN = 'while [ "$1" != -- ]; do echo $$ > "$1" || exit 125; shift; done; shift; exec "$@"'


class Bubblewrap:
    """A backend. Raises BackendUnavailable where bubblewrap or a control group cannot be had."""

    name = "bubblewrap"

    def __init__(self, *, progress: Callable[[str], None] = images.silent) -> None:
        if shutil.which("bwrap") is None:
            raise BackendUnavailable("bubblewrap is not installed: apt-get install bubblewrap")
        seccomp.program()  # refused now, where this machine has no filter
        self._progress = progress
        try:
            self._groups = cgroup.parents()
        except BackendUnavailable:
            if os.environ.get("LAKELOOP_ALLOW_NO_CGROUP") != "1":
                raise
            self._groups = []
        self._leftovers = endings.Leftovers(lambda now: cgroup.reap(self._groups, now))

    def prepare(self) -> None:
        """Make the root file system, if it is not there. Blocks."""
        images.root_filesystem(self._progress)

    async def start(self, spec: BoxSpec) -> RunnerBox:
        """A box that answers, with the work tree in place. ImageMissing, Unfit where its image cannot be one."""
        root, env = _root(spec.image or images.STANDARD.name)
        endings.on_signals()
        await self._leftovers.sweep()
        spec = replace(spec.leased(), env={**env, **spec.env})
        group = cgroup.create(self._groups, spec.limits)
        try:
            with seccomp.handed_over() as calls:
                command = ("/bin/sh", "-c", JOIN, "box", *group.procs, "--", *_command(root, spec, calls))
                process = await piped.start(
                    command,
                    {"PATH": PATH, "BOX_LABELS": json.dumps(dict(spec.labels))},
                    limit=LINE_LIMIT,
                    keep=[calls],
                )
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
        return ended("bubblewrap", process.returncode, group.oom_kills(), await errors.read(4096))

    box = RunnerBox(process.stdout, process.stdin, spec, end=end, why_gone=why_gone)
    lease = asyncio.get_running_loop().call_later(spec.limits.lease_s, _kill, process)
    return box


def _kill(process: Piped) -> None:
    if process.returncode is None:
        process.kill()  # --die-with-parent takes the rest along


def _root(name: str) -> tuple[Path, Mapping[str, str]]:
    """The folder of an image, one of ours or one by its path, and the environment that its commands have."""
    if not name.startswith("/"):
        return images.folder_of(name), {}
    image = in_folder(name)
    return Path(image.name), image.env


def _command(root: Path, spec: BoxSpec, calls: int) -> list[str]:
    limits, megabyte = spec.limits, 1 << 20
    foreign = spec.image is not None and spec.image.startswith("/")
    shown = ["--ro-bind", str(gateway_folder(spec.gateway)), GATEWAY_FOLDER] if spec.gateway else []
    if foreign:
        shown += ["--ro-bind", str(images.folder_of(images.STANDARD.name)), MOUNT]
    command = [
        *("bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"),
        *("--as-pid-1", "--uid", "1000", "--gid", "1000", "--hostname", "box"),
        *(binds(root) if foreign else ("--ro-bind", str(root), "/")),
        *("--proc", "/proc", "--dev", "/dev"),
        *("--remount-ro", "/dev", "--size", str(16 * megabyte), "--tmpfs", "/dev/shm"),  # noqa: S108 - the box's own
        *("--size", str(64 * megabyte), "--tmpfs", "/tmp"),  # noqa: S108 - the box's own
        *("--size", str(16 * megabyte), "--tmpfs", "/home/agent"),
        *("--size", str(limits.workdir_mb * megabyte), "--tmpfs", "/testbed"),
        *(["--tmpfs", "/run", *shown, "--remount-ro", "/run"] if shown else []),
        *(["--remount-ro", "/"] if foreign else []),
        *("--chdir", "/testbed", "--clearenv", "--setenv", "PATH", "/usr/bin:/bin", "--cap-drop", "ALL"),
        *("--seccomp", str(calls)),
        *([*PYTHON, *runner_command()[1:]] if foreign else runner_command()),
    ]
    return [*AS_AGENT, *command] if os.geteuid() == 0 else command
