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
from contextlib import AsyncExitStack
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from lakehouse.home import home
from sandboxes.backends.base import Backend
from sandboxes.deadline import Deadline
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
BOX_S = 15.0  # what a run takes besides its time: the box, the tree
REMEMBERED = 1024  # gradings kept by this process
AGAIN = "LAKELOOP_GRADE_AGAIN"  # share of gradings that are run twice
AGAIN_DEFAULT = 0.05
TEXTS = 8_000  # characters of all that pytest said of failing tests in one run, which the harness keeps at 2,000 each
INNOCENT = frozenset({"chance"})  # kinds of findings that are told and cost nothing

Measured = dict[str, Any]
_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, Slots] = WeakKeyDictionary()
_remembered: OrderedDict[tuple[str, str], Measured] = OrderedDict()
_running: WeakValueDictionary[tuple[int, str, str], asyncio.Lock] = WeakValueDictionary()


async def grade(key: str, spec: Spec, patch: Patch, backend: Backend) -> list[Fact]:
    """The facts `patch`, `scan`, `tests` and, where tests ran, `outcomes`; `failures` where any of them failed.

    SandboxError where a box failed. Equal patches of one problem's edition `key` are run once.
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
    # One that was stopped twice has failed; a second grading might find no time left, and be no grading at all.
    if first["tests"]["timed_out"] or random.SystemRandom().random() >= _share():
        return first
    second = await _once(spec, tree, backend)
    same = first["outcomes"]["marks"] == second["outcomes"]["marks"]
    both = first["tests"]["resolved"] and second["tests"]["resolved"]
    found = first | {
        "tests": first["tests"] | {"again": {"same": same} | second["tests"], "resolved": both},
        # The nodes are those of the first run.
        "outcomes": first["outcomes"]
        | {"again": {name: value for name, value in second["outcomes"].items() if name != "nodes"}},
    }
    if not same and "failures" in second:  # else the second would say what the first did
        found["failures"] = first.get("failures", {}) | {"again": second["failures"]}
    return found


async def _once(spec: Spec, tree: Mapping[str, bytes], backend: Backend) -> dict[str, Measured]:
    """One run in a box of its own; after a time-out once more with nothing beside it.

    Where many hang, the place alone may not come before this grading's deadline. Then the second run is beside others: code
    that did not end twice has failed, and to wait on would make an infrastructure failure, which has no reward, of that.
    """
    size = len(os.sched_getaffinity(0))
    slots = _slots.setdefault(asyncio.get_running_loop(), Slots(home().root / "grading", size))
    rng = random.Random(secrets.randbits(64))  # noqa: S311 - its seed is secret
    support = [path for path in tree if path.endswith(".py") and not spec.layout.is_source(path)]
    planted = plant(tree, spec.test_files, spec.fail_to_pass, spec.pass_to_pass, rng, support=support)
    timeout_s = max(LEAST_TIMEOUT_S, TIMEOUT_FACTOR * spec.duration_s)
    files = {**tree, **planted.files}
    stopped: Measured | None = None
    for attempt in (1, 2):
        async with AsyncExitStack() as place:
            alone = await _placed(place, slots, alone=attempt == 2, timeout_s=timeout_s)
            report = await run_fresh(
                backend,
                files,
                spec.layout.paths,
                spec.test_files,
                only=planted.ids,
                timeout_s=timeout_s,
                statements=False,
                raw=True,
            )
        if not report.timed_out:
            break
        if attempt == 1:
            stopped = {"duration_s": round(report.duration_s, 3)} | _reached(spec, planted, report)
    ran = {"ran": True, "empty": False, "attempts": attempt, "alone": alone, "backend": backend.name}
    outcomes = _outcomes(spec, planted, report)
    if stopped is not None:
        outcomes["stopped"] = stopped
    found = {"tests": _measured(spec, planted, report) | ran, "outcomes": outcomes}
    failures = _failures(spec, planted, report)
    return found | ({"failures": failures} if failures else {})


async def _placed(place: AsyncExitStack, slots: Slots, *, alone: bool, timeout_s: float) -> bool:
    """Wait for room to run in; whether nothing runs beside it. For room alone no longer than leaves the time for the run."""
    deadline = Deadline.current()
    patience_s = None if deadline is None or not alone else max(0.0, deadline.left() - timeout_s - BOX_S)
    try:
        async with asyncio.timeout(patience_s) as waiting:
            await place.enter_async_context(slots.take(alone=alone))
    except TimeoutError:
        if not waiting.expired():
            raise
        return False
    return alone


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
    reached = {"reached": _reached(spec, planted, report)} if report.timed_out else {}
    return reached | {
        "nodes": nodes,
        "marks": "".join(report.outcomes.get(one, "-") for one in run),
        "ms": [report.ms.get(one, 0.0) for one in run],
        "canaries": {
            known: "".join(report.outcomes.get(one, "-") for one in copies)
            for known, copies in planted.canaries.items()
        },
    }


def _reached(spec: Spec, planted: Planted, report: Report) -> Measured:
    """How far a run had come when it was stopped. It is told and never judged by: such a run has passed nothing."""
    run = [report.reached.get(planted.runs_as[node], ("-", 0.0)) for node in (*spec.fail_to_pass, *spec.pass_to_pass)]
    return {"marks": "".join(mark for mark, _ in run), "ms": [ms for _, ms in run]}


def _failures(spec: Spec, planted: Planted, report: Report) -> Measured:
    """What pytest said of the expected tests that failed, those to be repaired first, and of files that broke off.

    Nothing of the canaries, which are to fail. `left_out`: tests whose text found no room.
    """
    nodes = {planted.runs_as[node]: node for node in (*spec.fail_to_pass, *spec.pass_to_pass)}
    files = {path: path for path in spec.test_files}
    texts: dict[str, str] = {}
    left_out = 0
    for run, known in {**files, **nodes}.items():
        text = report.texts.get(run, "")
        if text and sum(map(len, texts.values())) + len(text) <= TEXTS:
            texts[known] = text
        elif report.outcomes.get(run) == "F" or text:
            left_out += 1
    return {"texts": texts, "left_out": left_out} if texts or left_out else {}
