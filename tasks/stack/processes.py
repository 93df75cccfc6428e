"""Processes that outlive the command which started them, and that are never confused with anybody else's.

A process runs in a session of its own, logs to `<home>/logs/NAME.log` and is noted in `<home>/pids/NAME.json` with its
start time, so that a process id used again by the system is not taken for ours. What a killed leader leaves behind is
found in two ways: by its session (the engine's workers; a process title overwrites the environment), and by the mark
`LAKELOOP_SERVICE=<home>:NAME` in the environment (flow runs; Prefect gives each a session of its own).
"""

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from lakehouse.home import Home

MARK = "LAKELOOP_SERVICE"


def start(name: str, command: Sequence[str], *, home: Home, environment: Mapping[str, str], cwd: Path) -> psutil.Popen:
    """Start `command` in a new session under `name`, its output appended to its log."""
    for folder in (home.logs, home.pids):
        folder.mkdir(parents=True, exist_ok=True)
    with log_path(name, home).open("ab") as log:
        log.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} {' '.join(command)}\n".encode())
        log.flush()
        process = psutil.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment, MARK: _mark(name, home)},
            cwd=cwd,
            start_new_session=True,  # a Ctrl-C in the terminal is for `up`, which then decides
        )
    note = _note(name, home)
    draft = note.with_suffix(".tmp")
    draft.write_text(json.dumps({"pid": process.pid, "started": process.create_time(), "command": list(command)}))
    draft.replace(note)
    return process


def running(name: str, home: Home) -> psutil.Process | None:
    """The live process noted under `name`, or None when it ended or its id now belongs to another process."""
    noted = _read(name, home)
    if noted is None:
        return None
    try:
        process = psutil.Process(noted.pid)
        return process if noted.is_(process) and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None


def stop(names: Sequence[str], home: Home, *, grace_s: float = 10.0) -> list[str]:
    """End the processes started under `names` with all that came from them; returns the names that had any.

    First SIGTERM to each leader alone, so that it can end its children in order; what is left later is killed.
    """
    families = {name: _family(name, home) for name in names}
    leaders = [leader for name in names if (leader := running(name, home)) is not None]
    alone = [process for name, family in families.items() if running(name, home) is None for process in family]
    for process in [*leaders, *alone]:
        _signal(process, kill=False)
    everyone = [process for family in families.values() for process in family]
    deadline = time.monotonic() + grace_s
    psutil.wait_procs(leaders, timeout=grace_s)
    # A leader that ended has done its clean-up: what it left gets a short grace, not the whole one.
    _, left = psutil.wait_procs(everyone, timeout=min(2.0, max(0.1, deadline - time.monotonic())))
    # Once more by mark: a leader may have started something while it was ending.
    left += [process for name in names for process in _family(name, home) if process not in left]
    for process in left:
        _signal(process, kill=True)
    psutil.wait_procs(left, timeout=5.0)
    for name in names:
        _note(name, home).unlink(missing_ok=True)
    return [name for name, family in families.items() if family]


def clear(name: str, home: Home) -> None:
    """End what is left of a process that was started under `name` and is gone, such as the children of one that was killed."""
    if _read(name, home) is not None and running(name, home) is None:
        stop([name], home)


def log_path(name: str, home: Home) -> Path:
    return home.logs / f"{name}.log"


def tail(name: str, home: Home, *, lines: int = 20) -> str:
    """The last lines of a process's log."""
    try:
        with log_path(name, home).open("rb") as log:
            log.seek(max(0, log_path(name, home).stat().st_size - 64_000))
            text = log.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


@dataclass(frozen=True)
class _Noted:
    pid: int
    started: float  # seconds since the epoch

    def is_(self, process: psutil.Process) -> bool:
        return bool(process.pid == self.pid and abs(process.create_time() - self.started) < 1.0)


def _note(name: str, home: Home) -> Path:
    return home.pids / f"{name}.json"


def _read(name: str, home: Home) -> _Noted | None:
    try:
        document = json.loads(_note(name, home).read_text())
        return _Noted(int(document["pid"]), float(document["started"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise RuntimeError(
            f"{_note(name, home)} is damaged; end the process by hand and delete the file: {error}"
        ) from error


def _mark(name: str, home: Home) -> str:
    return f"{home.root}:{name}"


def _session(name: str, home: Home) -> int | None:
    """The session the noted process leads or led. A session id stays taken while any member lives.

    Not beyond a restart of the machine, after which the number may be anybody's.
    """
    noted = _read(name, home)
    if noted is None or noted.started < psutil.boot_time():
        return None
    try:
        return noted.pid if noted.is_(psutil.Process(noted.pid)) else None
    except psutil.NoSuchProcess:
        return noted.pid


def _family(name: str, home: Home) -> list[psutil.Process]:
    """Every live process of the session or with the mark of `name`, without this one and the ones it runs under."""
    ours = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    session = _session(name, home)
    family = []
    for process in psutil.process_iter():
        try:
            found = os.getsid(process.pid) == session or process.environ().get(MARK) == _mark(name, home)
            if found and process.pid not in ours and process.status() != psutil.STATUS_ZOMBIE:
                family.append(process)
        except (psutil.AccessDenied, psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            continue  # somebody else's, or gone meanwhile
    return family


def _signal(process: psutil.Process, *, kill: bool) -> None:
    try:
        if kill:
            process.kill()
        else:
            process.terminate()
    except psutil.NoSuchProcess:
        pass  # it ended by itself, which is what we want
