"""Does a candidate hold up? Runs in boxes: the repaired source three times, the broken one twice, then both gates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakehouse.records import Problem
from sandboxes.backends.base import Backend
from sandboxes.problems.base import Kind
from sandboxes.problems.gates import gates
from sandboxes.problems.swe.packages import Package
from sandboxes.problems.swe.sources import pristine
from sandboxes.problems.swe.testing import Failure, Report, run_fresh

GOLD_RUNS = 3
MOST_FAILING = 10
LEAST_KEPT = 0.8  # share of all tests that must still pass on the broken source
RUN_S = 120.0
BROKEN_S = 20.0  # at least; or as many times as long as the repaired source takes
TIMEOUT_FACTOR = 10.0


class Rejected(Exception):
    """A candidate that makes no good problem; the text is the reason, one of few."""


@dataclass(frozen=True)
class Gold:
    """What holds for a repaired release: its tests that passed every time, by file, in order; the lines they run."""

    tests: Mapping[str, list[str]]
    lines: Mapping[str, list[int]]
    duration_s: float

    @property
    def all(self) -> list[str]:
        return [node for nodes in self.tests.values() for node in nodes]


@dataclass(frozen=True)
class Symptom:
    """How a broken source shows: the tests that fail, the files they are in, what they said."""

    fail_to_pass: tuple[str, ...]
    test_files: tuple[str, ...]
    failures: tuple[Failure, ...]
    duration_s: float


async def gold(
    backend: Backend, package: Package, version: str, files: Sequence[str] = (), *, traced: bool = True
) -> Gold:
    """Run a release's own tests, or those of some files, on its own source; tests that do not always pass are left out."""
    tree = pristine(package.name, version)
    files = files or [path for path in tree if package.is_test(path)]
    reports: list[Report] = []
    for number in range(GOLD_RUNS):
        trace = traced and number == 0
        report = await run_fresh(backend, tree, package.paths, files, only=None, timeout_s=RUN_S, trace=trace)
        if not report.complete:
            raise Rejected("the tests of the release itself break off")
        reports.append(report)
    stable = [node for node in reports[0].outcomes if all(report.outcomes.get(node) == "P" for report in reports)]
    tests: dict[str, list[str]] = {}
    for node in sorted(stable):
        tests.setdefault(node.partition("::")[0], []).append(node)
    return Gold(tests, reports[0].lines, max(report.duration_s for report in reports))


async def symptom(
    backend: Backend, package: Package, tree: Mapping[str, bytes], gold: Gold, *, most: int = MOST_FAILING
) -> Symptom:
    """Run a broken tree twice. Rejected where no test notices, too many do, or the two runs differ."""
    failing, _ = await failures(backend, package, tree, gold, list(gold.tests))
    if len(failing) > most or len(failing) > (1 - LEAST_KEPT) * len(gold.all):
        raise Rejected("too many tests fail")
    files = [file for file, nodes in gold.tests.items() if any(node in failing for node in nodes)]
    if sum(len(gold.tests[file]) for file in files) == len(failing):
        raise Rejected("no test of these files still passes")
    again, second = await failures(backend, package, tree, gold, files)
    if again != failing:
        raise Rejected("two runs differ")
    return Symptom(tuple(failing), tuple(files), tuple(second.failures), round(second.duration_s, 3))


async def failures(
    backend: Backend, package: Package, tree: Mapping[str, bytes], gold: Gold, files: Sequence[str]
) -> tuple[list[str], Report]:
    """The tests of these files that pass on the repaired source and fail on a broken one, in order. Rejected if there is none."""
    expected = [node for file in files for node in gold.tests[file]]
    timeout_s = max(BROKEN_S, TIMEOUT_FACTOR * gold.duration_s)
    report = await run_fresh(backend, tree, package.paths, list(files), only=expected, timeout_s=timeout_s)
    if report.timed_out:
        raise Rejected("the tests do not end")
    if not report.complete:
        raise Rejected("the test run breaks off")
    failing = [node for node in expected if report.outcomes.get(node) != "P"]
    if not failing:
        raise Rejected("no test notices")
    return failing, report


async def pass_gates(backend: Backend, kind: Kind, problem: Problem) -> None:
    """The oracle's calls resolve the problem and doing nothing does not. Rejected otherwise."""
    found = await gates(kind, problem, backend)
    if not found.oracle_passed:
        raise Rejected("the oracle does not solve it")
    if not found.null_failed:
        raise Rejected("doing nothing solves it")
