"""Grading: a fresh box from the pristine tree, the patch, the original tests, and the exact tests that must pass.

No scheme in which code under test shares a process with its judge is complete; what is here makes forging laborious:
our own configuration, no conftest or plugin of the agent's, exact node ids, exit status held against the report.
"""

import asyncio
import os
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from sandboxes.backends.base import Backend
from sandboxes.problems.base import Fact
from sandboxes.problems.swe.patch import Patch
from sandboxes.problems.swe.spec import Spec
from sandboxes.problems.swe.testing import Report, run_fresh

PRODUCER = "lakeloop swe 1"
LEAST_TIMEOUT_S = 30.0
TIMEOUT_FACTOR = 20.0
REMEMBERED = 4096  # gradings kept by this process


class Slots:
    """At most one grading per core in an event loop, since more only make each other slow; or one that has all cores."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._free = asyncio.Semaphore(size)
        self._exclusive = asyncio.Lock()

    @asynccontextmanager
    async def take(self, *, alone: bool = False) -> AsyncIterator[None]:
        if not alone:
            async with self._free:
                yield
            return
        async with self._exclusive:
            taken = 0
            try:
                for _ in range(self._size):
                    await self._free.acquire()
                    taken += 1
                yield
            finally:
                for _ in range(taken):
                    self._free.release()


Measured = dict[str, Any]
_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, Slots] = WeakKeyDictionary()
_remembered: OrderedDict[tuple[str, str], Measured] = OrderedDict()
_running: WeakValueDictionary[tuple[int, str, str], asyncio.Lock] = WeakValueDictionary()


async def grade(key: str, spec: Spec, patch: Patch, backend: Backend) -> list[Fact]:
    """The facts `patch` and `tests`. SandboxError where a box failed. Equal patches of one problem `key` are run once."""
    value = {"diff": patch.diff, "files": sorted(patch.files), "empty": patch.empty, "refused": list(patch.refused)}
    return [Fact("patch", value, PRODUCER), Fact("tests", await _tests(key, spec, patch, backend), PRODUCER)]


async def _tests(key: str, spec: Spec, patch: Patch, backend: Backend) -> Measured:
    """What the tests say. A patch that is empty or not Python is known to fail without running anything."""
    broken = "empty patch" if patch.empty else patch.syntax_error()
    if broken is not None:
        return _measured(spec, Report(exit_code=None)) | {
            "ran": False,
            "agrees": None,
            "empty": patch.empty,
            "why": broken,
        }
    where = (key, patch.digest)
    lock = _running.setdefault((id(asyncio.get_running_loop()), *where), asyncio.Lock())
    async with lock:
        if where in _remembered:
            _remembered.move_to_end(where)
            return _remembered[where] | {"cached": True}
        value = await _run(spec, patch, backend)
        if not value["timed_out"]:
            _remembered[where] = value
            while len(_remembered) > REMEMBERED:
                _remembered.popitem(last=False)
        return value


async def _run(spec: Spec, patch: Patch, backend: Backend) -> Measured:
    """Run the expected tests; after a time-out once more with nothing beside it."""
    slots = _slots.setdefault(asyncio.get_running_loop(), Slots(len(os.sched_getaffinity(0))))
    tree = spec.judged(patch.applied(spec.broken()))
    expected = [*spec.fail_to_pass, *spec.pass_to_pass]
    timeout_s = max(LEAST_TIMEOUT_S, TIMEOUT_FACTOR * spec.duration_s)
    for attempt in (1, 2):
        async with slots.take(alone=attempt == 2):
            report = await run_fresh(
                backend, tree, spec.layout.paths, spec.test_files, only=expected, timeout_s=timeout_s
            )
        if not report.timed_out:
            break
    return _measured(spec, report) | {"ran": True, "empty": False, "attempts": attempt, "backend": backend.name}


def _measured(spec: Spec, report: Report) -> Measured:
    """Counts, and whether everything expected passed and the exit status says so too."""
    must, keep = spec.fail_to_pass, spec.pass_to_pass
    fixed, kept = report.passed(must), report.passed(keep)
    failed = [node for node in (*must, *keep) if node not in {*fixed, *kept}]
    complete = len(fixed) == len(must) and len(kept) == len(keep)
    return {
        "fail_to_pass": {"passed": len(fixed), "total": len(must)},
        "pass_to_pass": {"passed": len(kept), "total": len(keep)},
        "resolved": complete and report.exit_code == 0 and report.agrees,
        "agrees": report.agrees,
        "exit_code": report.exit_code,
        "timed_out": report.timed_out,
        "failed": failed[:20],
        "duration_s": round(report.duration_s, 3),
        "slowest": list(report.slowest),
        "cached": False,
    }
