"""Start services side by side: what is missing is started, what is there is taken, and failure leaves nothing behind."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import httpx
import psutil

from lakehouse.home import Home
from tasks.stack import probes, processes
from tasks.stack.automations import NoSuchBlock
from tasks.stack.probes import Seen
from tasks.stack.services import Service
from tasks.stack.settings import ROOT

Event = Literal["starting", "started", "adopted", "running", "removed"]
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


@dataclass
class _Pending:
    """A service that is on its way up."""

    process: psutil.Process | None  # None: it runs elsewhere
    since: float  # seconds since the epoch
    deadline: float  # on the monotonic clock
    event: Event


class Start:
    """One `up` under way."""

    def __init__(self, home: Home, services: list[Service], on_progress: Progress) -> None:
        self.home = home
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
            processes.stop(self.started[::-1], self.home)
            raise
        return [self.done[service.name] for service in self.services]

    def _find(self, service: Service) -> None:
        """Take what is already there: a process of ours, or a right answer on the port."""
        ours = processes.running(service.name, self.home)
        if service.once:
            if ours is not None:
                processes.stop([service.name], self.home)  # left by an `up` that was killed
            return
        if ours is None and service.url:  # the worker's children are runs at work: they outlive it
            processes.clear(service.name, self.home)  # else it holds the port, and nobody watches over it
        since = ours.create_time() if ours is not None else 0.0
        look = service.probe(since) if ours is not None or service.url else probes.NOTHING
        if ours is not None:
            if look.seen is Seen.FOREIGN:
                raise StackError(f"{service.name} runs with other settings: {look.what}. Run `lakeloop down` first.")
            self.pending[service.name] = _Pending(ours, since, self._after(service.deadline_s), "running")
        elif look.seen is Seen.READY and service.url:
            self._finish(service, "adopted", None)
        elif look.seen is Seen.FOREIGN or (look.seen is Seen.SILENT and service.start is not None):
            raise StackError(
                f"{service.url} is taken: expected {service.expected}, found {look.what}. "
                f"Stop that program or set {service.setting}."
            )
        elif service.start is None:
            self.pending[service.name] = _Pending(None, time.time(), self._after(ELSEWHERE_S), "adopted")

    def _advance(self, service: Service) -> None:
        if service.name in self.done:
            return
        pending = self.pending.get(service.name)
        if pending is None:
            if not all(need in self.done for need in service.needs):
                return
            if service.once and service.probe(0.0).seen is Seen.READY:
                self._finish(service, "running", None)
            else:
                self._begin(service)
            return
        exit_status = _exit_status(pending.process)
        if service.once and exit_status == 0:
            self._finish(service, pending.event, None)
            return
        if exit_status is not None and pending.event == "running":  # it was ending when we found it
            if service.url:
                processes.clear(service.name, self.home)
            self._begin(service)
            return
        if exit_status is not None:
            raise self._failed(service, f"ended with exit status {exit_status} while starting")
        if not service.once and service.probe(pending.since).seen is Seen.READY:
            self._finish(service, pending.event, pending.process)
        elif time.monotonic() > pending.deadline:
            raise self._failed(service, f"was not up in time: {service.expected} did not answer")

    def _begin(self, service: Service) -> None:
        assert service.start is not None, "a service that runs elsewhere is found, never begun"
        self.report(service.name, "starting", time.monotonic() - self.began)
        try:
            launch = service.start()
        except httpx.HTTPError as error:
            raise StackError(f"{service.name} could not be prepared: {error}") from error
        self.started.append(service.name)
        process = processes.start(
            service.name, launch.command, home=self.home, environment=launch.environment, cwd=ROOT
        )
        self.pending[service.name] = _Pending(
            process, process.create_time(), self._after(service.deadline_s), "started"
        )

    def _finish(self, service: Service, event: Event, process: psutil.Process | None) -> None:
        if service.settle:
            try:
                service.settle()
            except (httpx.HTTPError, NoSuchBlock) as error:
                raise StackError(f"{service.name} answers and could not be set up: {error}") from error
        seconds = time.monotonic() - self.began
        condition: Condition = "adopted" if event == "adopted" else "running"
        self.done[service.name] = State(
            service.name, condition, service.url, process.pid if process else None, seconds=seconds
        )
        self.report(service.name, event, seconds)

    def _failed(self, service: Service, what: str) -> StackError:
        if service.start is None:
            return StackError(f"{service.name} {what} at {service.url}. Start it there or unset {service.setting}.")
        log = processes.log_path(service.name, self.home)
        return StackError(f"{service.name} {what}. Last lines of {log}:\n{processes.tail(service.name, self.home)}")

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
