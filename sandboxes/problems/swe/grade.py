"""Grading: a fresh box from the pristine tree, the patch, the original tests, and the exact tests that must pass.

No scheme in which code under test shares a process with its judge is complete; what is here makes forging laborious:
our own configuration, no conftest or plugin of the agent's, exact node ids under fresh names, canaries that must fail,
exit status held against the report, a second run of a random sample. docs/grading.md says what is left.
"""

import asyncio
import os
import random
import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from lakehouse.home import home
from sandboxes.backends.base import Backend
from sandboxes.problems.base import EnvironmentFailure, Fact
from sandboxes.problems.swe.canaries import Planted, plant
from sandboxes.problems.swe.patch import Patch
from sandboxes.problems.swe.scan import evidence, scan
from sandboxes.problems.swe.slots import Slots
from sandboxes.problems.swe.spec import Spec
from sandboxes.problems.swe.testing import Report, run_fresh

PRODUCER = "lakeloop swe 2"
LEAST_TIMEOUT_S = 30.0
TIMEOUT_FACTOR = 20.0
REMEMBERED = 1024  # gradings kept by this process
AGAIN = "LAKELOOP_GRADE_AGAIN"  # share of gradings that are run twice
AGAIN_DEFAULT = 0.05
INNOCENT = frozenset({"chance"})  # kinds of findings that are told and cost nothing

Measured = dict[str, Any]
_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, Slots] = WeakKeyDictionary()
_remembered: OrderedDict[tuple[str, str], Measured] = OrderedDict()
_running: WeakValueDictionary[tuple[int, str, str], asyncio.Lock] = WeakValueDictionary()


async def grade(key: str, spec: Spec, patch: Patch, backend: Backend) -> list[Fact]:
    """The facts `patch`, `scan`, `tests` and, where tests ran, `outcomes`.

    SandboxError where a box failed. Equal patches of one problem `key` are run once.
    """
    value = {"diff": patch.diff, "files": sorted(patch.files), "empty": patch.empty, "refused": list(patch.refused)}
    facts = {"patch": value, "scan": evidence(scan(spec.broken(), patch.files))} | await _tests(
        key, spec, patch, backend
    )
    return [Fact(name, value, PRODUCER) for name, value in facts.items()]


def solved(facts: Sequence[Fact]) -> bool:
    """Whether facts are full marks: everything passed, nothing was forged, and the patch keeps to its business."""
    by_name = {fact.name: fact.value for fact in facts}
    suspicious = set(by_name.get("scan", {}).get("counts", {})) - INNOCENT
    return "tests" in by_name and by_name["tests"]["resolved"] is True and not suspicious


async def _tests(key: str, spec: Spec, patch: Patch, backend: Backend) -> dict[str, Measured]:
    """What the tests say. A patch that is empty or not Python is known to fail without running anything."""
    broken = "empty patch" if patch.empty else patch.syntax_error()
    if broken is not None:
        nothing = _measured(spec, Planted(), Report(exit_code=None))
        return {"tests": nothing | {"ran": False, "agrees": None, "empty": patch.empty, "why": broken}}
    where = (key, patch.digest)
    lock = _running.setdefault((id(asyncio.get_running_loop()), *where), asyncio.Lock())
    async with lock:
        if where in _remembered:
            _remembered.move_to_end(where)
            found = _remembered[where]
            return found | {"tests": found["tests"] | {"cached": True}}
        found = await _run(spec, patch, backend)
        if not found["tests"]["timed_out"]:
            _remembered[where] = found
            while len(_remembered) > REMEMBERED:
                _remembered.popitem(last=False)
        return found


async def _run(spec: Spec, patch: Patch, backend: Backend) -> dict[str, Measured]:
    """Run the expected tests, a random share of times again with other names and canaries: both must say the same."""
    tree = spec.judged(patch.applied(spec.broken()))
    first = await _once(spec, tree, backend)
    if random.SystemRandom().random() >= _share():
        return first
    second = await _once(spec, tree, backend)
    same = first["outcomes"]["marks"] == second["outcomes"]["marks"]
    both = first["tests"]["resolved"] and second["tests"]["resolved"]
    return first | {"tests": first["tests"] | {"again": {"same": same} | second["tests"], "resolved": both}}


async def _once(spec: Spec, tree: Mapping[str, bytes], backend: Backend) -> dict[str, Measured]:
    """One run in a box of its own; after a time-out once more with nothing beside it."""
    size = len(os.sched_getaffinity(0))
    slots = _slots.setdefault(asyncio.get_running_loop(), Slots(home().root / "grading", size))
    rng = random.Random(secrets.randbits(64))  # noqa: S311 - its seed is secret
    support = [path for path in tree if path.endswith(".py") and not spec.layout.is_source(path)]
    planted = plant(tree, spec.test_files, spec.fail_to_pass, spec.pass_to_pass, rng, support=support)
    timeout_s = max(LEAST_TIMEOUT_S, TIMEOUT_FACTOR * spec.duration_s)
    files = {**tree, **planted.files}
    for attempt in (1, 2):
        async with slots.take(alone=attempt == 2):
            report = await run_fresh(
                backend,
                files,
                spec.layout.paths,
                spec.test_files,
                only=planted.ids,
                timeout_s=timeout_s,
                statements=False,
            )
        if not report.timed_out:
            break
    ran = {"ran": True, "empty": False, "attempts": attempt, "backend": backend.name}
    return {"tests": _measured(spec, planted, report) | ran, "outcomes": _outcomes(spec, planted, report)}


def _share() -> float:
    """The share of gradings that are run twice."""
    given = os.environ.get(AGAIN, str(AGAIN_DEFAULT))
    try:
        share = float(given)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise EnvironmentFailure(f"{AGAIN} is {given!r} and should be a share between 0 and 1: unset it, or set 0.05")
    return share


def _measured(spec: Spec, planted: Planted, report: Report) -> Measured:
    """Counts, and whether everything expected passed, no canary did, and the exit status says so too."""
    must, keep = spec.fail_to_pass, spec.pass_to_pass
    passed = {known for known, run in planted.runs_as.items() if report.outcomes.get(run) == "P"}
    failed = [node for node in (*must, *keep) if node not in passed]
    unmasked = planted.unmasked(report.outcomes)
    honest_exit = 1 if planted.canaries else 0  # canaries fail
    return {
        "fail_to_pass": {"passed": sum(node in passed for node in must), "total": len(must)},
        "pass_to_pass": {"passed": sum(node in passed for node in keep), "total": len(keep)},
        "resolved": not failed and not unmasked and report.agrees and report.exit_code == honest_exit,
        "canaries": {"planted": len(planted.copies), "unmasked": unmasked[:20]},
        "agrees": report.agrees,
        "exit_code": report.exit_code,
        "timed_out": report.timed_out,
        "failed": failed[:20],
        "duration_s": round(report.duration_s, 3),
        "again": None,
        "cached": False,
    }


def _outcomes(spec: Spec, planted: Planted, report: Report) -> Measured:
    """Every expected test: its mark (P, F, S, X; - where it did not run) and its milliseconds; those of its canaries."""
    nodes = [*spec.fail_to_pass, *spec.pass_to_pass]
    run = [planted.runs_as[node] for node in nodes]
    return {
        "nodes": nodes,
        "marks": "".join(report.outcomes.get(one, "-") for one in run),
        "ms": [report.ms.get(one, 0.0) for one in run],
        "canaries": {
            known: "".join(report.outcomes.get(one, "-") for one in copies)
            for known, copies in planted.canaries.items()
        },
    }
