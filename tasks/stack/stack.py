"""Bring the local stack up, take it down, say how it is.

`up` starts what is missing side by side, adopts what already answers and is the right thing, and either gives a whole
stack or leaves things as it found them. `down` ends only what `up` started from this home folder.
"""

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import psutil

from tasks.serving import models
from tasks.stack import probes, processes
from tasks.stack.probes import Look, Seen
from tasks.stack.services import Service, plan
from tasks.stack.settings import ROOT, Settings

Event = Literal["starting", "started", "adopted", "running"]
Condition = Literal["running", "starting", "adopted", "foreign", "down"]
Progress = Callable[[str, Event, float], None]  # service, what happened, seconds since `up` began

POLL_S = 0.2
ELSEWHERE_S = 15.0  # how long a service that runs elsewhere may take to answer


class StackError(RuntimeError):
    """The stack could not be brought up; the message names the cause and what to do."""


@dataclass(frozen=True)
class State:
    """How one service is."""

    name: str
    condition: Condition
    url: str | None
    pid: int | None  # of the process we started
    detail: str = ""
    seconds: float = 0.0  # until it was up, in `up`


def up(settings: Settings, on_progress: Progress = lambda *_: None) -> list[State]:
    """Bring every service up and wait until all are; one state per service.

    Raises StackError when a port is taken by another program, a service ends early or misses its deadline.
    """
    with _alone(settings):
        folder = None if settings.engine_url else models.resolve(settings.model, settings.home)
        states = _Start(settings, plan(settings, folder), on_progress).run()
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
    for service in plan(settings, None):
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


def _condition(ours: bool, look: Look | None) -> Condition:
    ready = look is not None and look.seen is Seen.READY
    if ours:
        return "running" if ready else "starting"
    if ready:
        return "adopted"
    return "foreign" if look is not None and look.seen in (Seen.FOREIGN, Seen.SILENT) else "down"


@dataclass
class _Pending:
    """A service that is on its way up."""

    process: psutil.Process | None  # None: it runs elsewhere
    since: float  # seconds since the epoch
    deadline: float  # on the monotonic clock
    event: Event


class _Start:
    """One `up` under way."""

    def __init__(self, settings: Settings, services: list[Service], on_progress: Progress) -> None:
        self.settings = settings
        self.services = services
        self.report = on_progress
        self.began = time.monotonic()
        self.pending: dict[str, _Pending] = {}
        self.done: dict[str, State] = {}
        self.started: list[str] = []

    def run(self) -> list[State]:
        for service in self.services:
            self._find(service)  # before anything is started, so that a taken port costs nothing
        try:
            while len(self.done) < len(self.services):
                for service in self.services:
                    self._advance(service)
                time.sleep(POLL_S)
        except BaseException:  # Ctrl-C too: half a stack would be in the way of the next `up`
            processes.stop(self.started[::-1], self.settings.home)
            raise
        return [self.done[service.name] for service in self.services]

    def _find(self, service: Service) -> None:
        """Take what is already there: a process of ours, or a right answer on the port."""
        ours = processes.running(service.name, self.settings.home)
        if service.once:
            if ours is not None:
                processes.stop([service.name], self.settings.home)  # left by an `up` that was killed
            return
        since = ours.create_time() if ours is not None else 0.0
        look = service.probe(since) if ours is not None or service.url else probes.NOTHING
        if ours is not None:
            if look.seen is Seen.FOREIGN:
                raise StackError(f"{service.name} runs with other settings: {look.what}. Run `lakeloop down` first.")
            self.pending[service.name] = _Pending(ours, since, self._after(service.deadline_s), "running")
        elif look.seen is Seen.READY and service.url:
            self._finish(service, "adopted", None)
        elif look.seen in (Seen.FOREIGN, Seen.SILENT):
            raise StackError(
                f"{service.url} is taken: expected {service.expected}, found {look.what}. "
                f"Stop that program or set {service.setting}."
            )
        elif service.command is None:
            self.pending[service.name] = _Pending(None, time.time(), self._after(ELSEWHERE_S), "adopted")

    def _advance(self, service: Service) -> None:
        if service.name in self.done:
            return
        pending = self.pending.get(service.name)
        if pending is None:
            if all(need in self.done for need in service.needs):
                self._begin(service)
            return
        exit_status = _exit_status(pending.process)
        if service.once and exit_status == 0:
            self._finish(service, pending.event, None)
            return
        if exit_status is not None:
            raise self._failed(service, f"ended with exit status {exit_status} while starting")
        if not service.once and service.probe(pending.since).seen is Seen.READY:
            self._finish(service, pending.event, pending.process)
        elif time.monotonic() > pending.deadline:
            raise self._failed(service, f"was not up in time: {service.expected} did not answer")

    def _begin(self, service: Service) -> None:
        assert service.command is not None, "a service without a command is found, never begun"
        if service.prepare:
            service.prepare()
        self.report(service.name, "starting", time.monotonic() - self.began)
        self.started.append(service.name)
        process = processes.start(
            service.name,
            service.command,
            home=self.settings.home,
            environment=service.environment,
            cwd=ROOT,
        )
        self.pending[service.name] = _Pending(
            process, process.create_time(), self._after(service.deadline_s), "started"
        )

    def _finish(self, service: Service, event: Event, process: psutil.Process | None) -> None:
        if service.settle:
            service.settle()
        seconds = time.monotonic() - self.began
        condition: Condition = "adopted" if event == "adopted" else "running"
        self.done[service.name] = State(
            service.name, condition, service.url, process.pid if process else None, seconds=seconds
        )
        self.report(service.name, event, seconds)

    def _failed(self, service: Service, what: str) -> StackError:
        if service.command is None:
            return StackError(f"{service.name} {what} at {service.url}. Start it there or unset {service.setting}.")
        log = processes.log_path(service.name, self.settings.home)
        return StackError(
            f"{service.name} {what}. Last lines of {log}:\n{processes.tail(service.name, self.settings.home)}"
        )

    @staticmethod
    def _after(seconds: float) -> float:
        return time.monotonic() + seconds


def _exit_status(process: psutil.Process | None) -> int | None:
    """The exit status of a process that ended; -1 when it is not our child and so not known. None while it lives."""
    if process is None:
        return None
    if isinstance(process, psutil.Popen):
        status: int | None = process.poll()
        return status
    return None if process.is_running() and process.status() != psutil.STATUS_ZOMBIE else -1


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
