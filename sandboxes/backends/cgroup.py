"""A control group per box: memory, processes, CPU. Versions 1 and 2, as files because that is their interface."""

import asyncio
import atexit
import math
import os
import secrets
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sandboxes.backends.base import BackendUnavailable, Limits, SandboxError

PARENT = "lakeloop"
CONTROLLERS = ("memory", "pids", "cpu")
PERIOD_US = 100_000
PAUSE_S = 0.003  # between two tries
REMOVE_DEADLINE_S = 10.0
_own: set[Path] = set()  # groups of this program that are still there


def parents(mount: Path = Path("/sys/fs/cgroup")) -> list[Path]:
    """The folders under which boxes get theirs: one on version 2, one per controller on version 1.

    Raises BackendUnavailable where none can be had.
    """
    unified = (mount / "cgroup.controllers").exists()
    found = [mount / PARENT] if unified else [mount / controller / PARENT for controller in CONTROLLERS]
    try:
        if unified:
            _delegate(mount)
        for folder in found:
            if not folder.parent.is_dir():
                raise FileNotFoundError(f"{folder.parent} is not mounted")
            folder.mkdir(exist_ok=True)
        if unified:
            _delegate(mount / PARENT)
    except OSError as error:
        raise BackendUnavailable(
            f"bubblewrap boxes need a control group for their memory and process limits, and none can be had: {error}. "
            "Run as root with /sys/fs/cgroup writable, or set LAKELOOP_ALLOW_NO_CGROUP=1 to go without limits."
        ) from error
    return found


def _delegate(folder: Path) -> None:
    """Version 2: let the children of `folder` have our controllers."""
    control = folder / "cgroup.subtree_control"
    if not set(CONTROLLERS) <= set(control.read_text().split()):
        control.write_text(" ".join(f"+{name}" for name in CONTROLLERS))


@dataclass(frozen=True)
class Group:
    """One box's control group; empty where the operator allowed boxes without one."""

    folders: tuple[Path, ...]

    @property
    def procs(self) -> list[str]:
        """The files a process writes itself into to join."""
        return [str(folder / "cgroup.procs") for folder in self.folders]

    def oom_kills(self) -> int:
        """How many processes of the box were killed for memory."""
        for folder in self.folders:
            for name in ("memory.oom_control", "memory.events"):
                with suppress(OSError):
                    for line in (folder / name).read_text().splitlines():
                        key, _, value = line.partition(" ")
                        if key == "oom_kill":
                            return int(value)
        return 0

    async def remove(self) -> None:
        """Kill what is left and remove the folders. SandboxError when something will not die."""
        deadline = time.monotonic() + REMOVE_DEADLINE_S
        left = list(self.folders)
        while left := [folder for folder in left if not _try_remove(folder)]:
            if time.monotonic() > deadline:
                raise SandboxError(f"processes in {left[0]} would not die within {REMOVE_DEADLINE_S:.0f} s")
            try:
                await asyncio.sleep(PAUSE_S)
            except asyncio.CancelledError:  # the program is ending: nobody will come again before the lease is over
                for folder in left:
                    _remove_now(folder)
                raise
        _own.difference_update(self.folders)


def create(folders: list[Path], limits: Limits) -> Group:
    """A group with these limits. The folder's name carries the end of its lease, for `reap`, and who made it."""
    name = f"{math.ceil(time.time() + limits.lease_s)}-{os.getpid()}-{secrets.token_hex(6)}"
    memory = str(limits.memory_mb << 20)
    pids = str(limits.pids + 4)  # the agent's, and ours: launcher, runner, and a fork in flight
    quota = int(limits.cpus * PERIOD_US)
    group = Group(tuple(folder / name for folder in folders))
    for folder in group.folders:
        folder.mkdir()
        _own.add(folder)
        for file, value in (
            ("memory.limit_in_bytes", memory),
            ("memory.memsw.limit_in_bytes", memory),
            ("cpu.cfs_period_us", str(PERIOD_US)),
            ("cpu.cfs_quota_us", str(quota)),
            ("pids.max", pids),
            ("memory.max", memory),
            ("memory.swap.max", "0"),
            ("cpu.max", f"{quota} {PERIOD_US}"),
        ):
            if (folder / file).exists():  # swap accounting may be off in the kernel
                (folder / file).write_text(value)
    return group


def reap(folders: list[Path], now: float) -> int:
    """Remove groups past their lease, with what runs in them. Returns how many boxes."""
    names: set[str] = set()
    for parent in folders:
        for folder in parent.iterdir():
            until, _, rest = folder.name.partition("-")
            if folder.is_dir() and rest and until.isdigit() and int(until) < now:
                names.add(folder.name)
                _remove_now(folder)
    return len(names)


@atexit.register
def _remove_own() -> None:
    """A program that ends without closing its boxes ends them too; of a killed one the reaper finds them."""
    for folder in _own:
        if f"-{os.getpid()}-" in folder.name:  # a fork of the program has no boxes
            _remove_now(folder)


def _remove_now(folder: Path) -> None:
    """Without an event loop, for a third of a second at most."""
    for _ in range(100):
        if _try_remove(folder):
            return
        time.sleep(PAUSE_S)


def _try_remove(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:  # still in use
        with suppress(OSError, ValueError):
            for pid in (folder / "cgroup.procs").read_text().split():
                if pid != "0":  # a process of another pid namespace
                    os.kill(int(pid), signal.SIGKILL)
        return False
    return True
