"""Bring the local stack up, take it down, say how it is.

`up` starts what is missing side by side, adopts what already answers and is the right thing, and either gives a whole
stack or leaves things as it found them. `down` ends only what `up` started from this home folder.
"""

import fcntl
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sandboxes import backends
from sandboxes.backends.base import SandboxError
from tasks.stack import processes
from tasks.stack.probes import Look, Seen
from tasks.stack.services import plan
from tasks.stack.settings import Settings
from tasks.stack.starting import Condition, Progress, StackError, Start, State

log = logging.getLogger(__name__)


def up(settings: Settings, on_progress: Progress = lambda *_: None) -> list[State]:
    """Bring every service up and wait until all are; one state per service. Boxes past their lease are removed first.

    Raises StackError when a port is taken by another program, a service ends early or misses its deadline.
    """
    with _alone(settings):
        _reap(on_progress)
        states = Start(settings.home, plan(settings), on_progress).run()
        settings.remember()
        return states


def down(settings: Settings) -> list[str]:
    """End what `up` started, those that use others first; the names of what was ended."""
    ended = []
    for names in (["watcher", "deployments", "worker"], ["gateway", "engine"], ["mlflow", "prefect"]):
        ended += processes.stop(names, settings.home)
    settings.forget()
    return ended


def status(settings: Settings) -> list[State]:
    """How every service is, without changing anything."""
    states = []
    for service in plan(settings):
        if service.once:
            continue
        process = processes.running(service.name, settings.home)
        since = process.create_time() if process is not None else 0.0
        look = service.probe(since) if process is not None or service.url else None
        condition = _condition(process is not None, look)
        states.append(
            State(service.name, condition, service.url, process.pid if process else None, look.what if look else "")
        )
    return states


def _reap(on_progress: Progress) -> None:
    """Remove the boxes that killed runs left behind on this machine."""
    try:
        removed = sum(backends.reap().values())
    except (SandboxError, OSError) as error:  # no reason to stay down; `maintain` tries again
        log.warning("boxes past their lease could not be removed: %s", error)
        return
    if removed:
        on_progress("boxes", "removed", 0.0)


def _condition(ours: bool, look: Look | None) -> Condition:
    ready = look is not None and look.seen is Seen.READY
    if ours:
        return "running" if ready else "starting"
    if ready:
        return "adopted"
    return "foreign" if look is not None and look.seen in (Seen.FOREIGN, Seen.SILENT) else "down"


@contextmanager
def _alone(settings: Settings) -> Iterator[None]:
    """Hold the home's lock: two `up` at once would start everything twice."""
    settings.home.pids.mkdir(parents=True, exist_ok=True)
    with (settings.home.pids / "up.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StackError(f"another `lakeloop up` is at work in {settings.home.root}; wait for it") from error
        yield
