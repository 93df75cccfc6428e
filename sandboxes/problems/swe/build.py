"""Make problems: draw bugs, see in boxes which of them hold up, tell those as problems.

The same seed draws the same candidates. A build that was stopped goes on where it was, and one that starts from problems
that are there already adds to them and leaves them as they are. Packages may be built side by side: a statement begins with
its package, and combinations are of one package, so none depends on another, and the result is the same in any order.
"""

import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, computed_field

from lakehouse.records import Problem, digest
from sandboxes.backends.base import Backend
from sandboxes.problems.swe import drafts, pairs, spec, validate
from sandboxes.problems.swe.kind import KIND
from sandboxes.problems.swe.packages import Package
from sandboxes.problems.swe.sources import pristine
from sandboxes.problems.swe.spec import Bug, mutated, read_spec
from sandboxes.problems.swe.validate import Gold, Rejected

HINTS = (3, 3, 3, 2, 3, 3, 1, 3, 3, 3, 0, 3)  # of a package's problems with one bug, in turn
HINTS_COMBINED = (2, 1, 2, 0)
SINGLES = 24
COMBINED = 18
TOLD_ALIKE = "another problem has the same statement"  # whoever reads it could not know which of the two is meant
NAMES_A_TEST = "the statement names a test"  # where one test calls another by its name


class Verdict(BaseModel):
    """What a candidate came to, as the journal keeps it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    package: str = ""
    kind: str = ""  # of the mutation; "combined" or "versions"
    seconds: float  # that it took
    elapsed: float | None = None  # since the verdict before it, on any package: these add up to the clock on the wall
    problem: Problem | None
    reason: str = ""


class Rates(BaseModel):
    """How many of the candidates that were tried were kept."""

    tried: int = 0
    kept: int = 0

    @property
    def share(self) -> float:
        return self.kept / max(1, self.tried)


class Report(BaseModel):
    """What a build came to: rates by package and by kind of bug, and why the others were rejected."""

    tried: int = 0
    kept: int = 0
    told: int = 0  # problems made of those that were kept: some bugs are told twice, with different hints
    seconds: float = 0.0  # on the clock, all packages together
    worked: float = 0.0  # of every candidate, added up: more than passed on the clock where several were tried at once
    by_package: dict[str, Rates] = {}
    by_kind: dict[str, Rates] = {}
    rejected: dict[str, int] = {}  # by reason

    @computed_field  # type: ignore[prop-decorator]
    @property
    def per_hour(self) -> float:
        """Problems kept per hour on the clock; none is counted again for being told twice."""
        return round(3600 * self.kept / max(1.0, self.seconds), 1)

    @classmethod
    def of(cls, counted: Iterable[tuple[Verdict, int]]) -> "Report":
        """From verdicts, and how many problems were told of each; packages in alphabetical order."""
        report = cls()
        for verdict, told in sorted(counted, key=lambda one: one[0].package):
            report._add(verdict, told)
        report.seconds, report.worked = round(report.seconds, 1), round(report.worked, 1)
        return report

    def _add(self, verdict: Verdict, told: int) -> None:
        kept = verdict.problem is not None
        self.tried += 1
        self.kept += kept
        self.told += told
        self.seconds += verdict.seconds if verdict.elapsed is None else verdict.elapsed
        self.worked += verdict.seconds
        for rates, name in ((self.by_package, verdict.package), (self.by_kind, verdict.kind)):
            rate = rates.setdefault(name, Rates())
            rate.tried += 1
            rate.kept += kept
        if not kept:
            self.rejected[verdict.reason] = self.rejected.get(verdict.reason, 0) + 1


@dataclass(frozen=True)
class Order:
    """How many problems a package shall have, those that are there already among them."""

    singles: int = SINGLES
    combined: int = COMBINED
    versions: bool = True
    seed: int = 0


class Builder:
    """Validates the candidates of a package one after the other; several packages may be under way at a time.

    `problems` holds those that were there and those that passed everything.
    """

    def __init__(self, out: Path, backend: Backend, existing: Sequence[Problem] = ()) -> None:
        self.backend = backend
        self.problems = list(existing)
        self._counted: list[tuple[Verdict, int]] = []
        self._last = time.monotonic()  # when the last verdict was found
        self._gold: dict[tuple[str, str], Gold] = {}
        out.mkdir(parents=True, exist_ok=True)
        self._journal = out / "journal.jsonl"
        lines = self._journal.read_text().splitlines() if self._journal.exists() else []
        self._known = {verdict.key: verdict for verdict in map(Verdict.model_validate_json, lines)}

    @property
    def report(self) -> Report:
        """What came of it so far, the same in whatever order packages were built."""
        return Report.of(self._counted)

    async def package(self, package: Package, order: Order) -> AsyncIterator[Problem]:
        """Everything of one package, as it is found."""
        async for problem in self.singles(package, order.singles, order.seed):
            yield problem
        async for problem in self.combined(package, order.combined, order.seed):
            yield problem
        if order.versions:
            async for problem in self.versions(package):
                yield problem

    def missing(self, package: Package, order: Order) -> int:
        """How many it lacks; there may not be so many."""
        mine = self._of(package)
        single = sum(len(read_spec(problem).bugs) == 1 for problem in mine)
        return max(0, order.singles - single) + max(0, order.combined - sum(bool(read_spec(p).also) for p in mine))

    async def singles(self, package: Package, number: int, seed: int) -> AsyncIterator[Problem]:
        """Problems with one bug, until the package has `number` of them or the candidates run out."""
        gold = await self.gold(package, package.version)
        mine = self._singles(package)
        spread = drafts.Spread(bug for problem in mine for bug in read_spec(problem).bugs)
        seen = Counter(bug.kind for problem in mine for bug in read_spec(problem).bugs)
        kept = len(mine)
        for bug in drafts.candidates(package, seed, gold.lines, seen):
            if kept >= number:
                break
            if not spread.room(bug):
                continue
            # What cannot be read off the broken line is no exercise in reading it.
            hint = min(HINTS[kept % len(HINTS)], 2 if bug.kind in drafts.LOSSY else 3)

            async def draft(bug: Bug = bug, hint: int = hint) -> Problem:
                tree = mutated(pristine(package.name, package.version), [bug])
                symptom = await validate.symptom(self.backend, package, tree, gold)
                return drafts.procedural(package, bug, symptom, hint=hint)

            key = digest(package.name, package.version, bug.model_dump_json(), str(hint))
            problem = await self._keep(key, package, bug.kind, draft)
            if problem is not None:
                spread.add(bug)
                kept += 1
                yield problem

    async def combined(self, package: Package, number: int, seed: int) -> AsyncIterator[Problem]:
        """Problems with two or three bugs, each of which is a problem of its own already."""
        gold = await self.gold(package, package.version)
        mine = [problem for problem in self._of(package) if read_spec(problem).also]
        used = Counter(bug for problem in mine for bug in read_spec(problem).bugs)
        kept = len(mine)
        for parts in drafts.combinations(package, seed, self._singles(package)):
            if kept >= number:
                break
            bugs = [bug for part in parts for bug in read_spec(part).bugs]
            if any(used[bug] >= drafts.PER_BUG for bug in bugs):
                continue
            hint = HINTS_COMBINED[kept % len(HINTS_COMBINED)]

            async def draft(parts: Sequence[Problem] = parts, bugs: Sequence[Bug] = bugs, hint: int = hint) -> Problem:
                tree = mutated(pristine(package.name, package.version), bugs)
                most = validate.MOST_FAILING * len(bugs)
                symptom = await validate.symptom(self.backend, package, tree, gold, most=most)
                return drafts.combined(package, parts, symptom, hint=hint)

            key = digest(package.name, package.version, *(bug.model_dump_json() for bug in bugs), str(hint))
            problem = await self._keep(key, package, "combined", draft)
            if problem is not None:
                used.update(bugs)
                kept += 1
                yield problem

    async def versions(self, package: Package) -> AsyncIterator[Problem]:
        """The problems between releases of a package."""
        there = {problem.problem_id for problem in self.problems}
        for pair in pairs.PAIRS:
            if pair.package != package.name or drafts.pair_id(pair.package, pair.old, pair.new) in there:
                continue

            async def draft(pair: pairs.Pair = pair) -> Problem:
                repair = pairs.repair(pair)
                gold = await self.gold(pair.layout, pair.new)
                most = pairs.MOST_FAILING
                symptom = await validate.symptom(self.backend, pair.layout, pairs.broken(pair), gold, most=most)
                if len(gold.all) - len(symptom.fail_to_pass) < pairs.LEAST_KEPT:
                    raise Rejected("too few tests pass before and after")
                return drafts.pair(pair.layout, pair.old, pair.new, repair, symptom, pair.sentence)

            key = digest(pair.package, pair.old, pair.new, pair.sentence)
            problem = await self._keep(key, package, "versions", draft)
            if problem is not None:
                yield problem

    async def gold(self, package: Package, version: str) -> Gold:
        """Validated once per release, and made known to grading."""
        key = (package.name, version)
        if key not in self._gold:
            self._gold[key] = await validate.gold(self.backend, package, version)
            spec.learn(package.name, version, self._gold[key].tests)
        return self._gold[key]

    def _of(self, package: Package) -> list[Problem]:
        """Its problems in the version that bugs are made in, each bug once."""
        source = f"{package.name}=={package.version}"
        mine = [problem for problem in self.problems if problem.source == source]
        return [problem for problem in mine if read_spec(problem).hint < drafts.POINTED]

    def _singles(self, package: Package) -> list[Problem]:
        return [problem for problem in self._of(package) if len(read_spec(problem).bugs) == 1]

    async def _keep(
        self, key: str, package: Package, kind: str, draft: Callable[[], Awaitable[Problem]]
    ) -> Problem | None:
        """The problem if the candidate held up, now or in an earlier build; counts it either way."""
        verdict = self._known.get(key)
        if verdict is None:
            verdict = await self._judge(key, package, kind, draft)
            with self._journal.open("a") as journal:
                journal.write(verdict.model_dump_json() + "\n")
        refused = verdict.problem and self._refused(verdict.problem)
        if refused:  # in a journal of other problems, or an old one
            verdict = verdict.model_copy(update={"problem": None, "reason": refused})
        # A bug that can be read off its line is told a second time: only what the statement shows differs.
        told = [] if verdict.problem is None else [verdict.problem, drafts.pointed(verdict.problem)]
        made = [problem for problem in told if problem is not None and not self._told(problem)]
        self.problems += made
        self._counted.append((verdict, len(made)))
        return verdict.problem

    def _refused(self, problem: Problem) -> str | None:
        """Why a problem cannot be told, or None."""
        if self._told(problem):
            return TOLD_ALIKE
        tests = {node.partition("[")[0].rpartition("::")[2] for node in read_spec(problem).fail_to_pass}
        return NAMES_A_TEST if tests & set(re.findall(r"\w+", problem.prompt)) else None

    def _told(self, problem: Problem) -> bool:
        """Whether another problem that is there has this statement, word for word."""
        return any(known.prompt == problem.prompt and known.problem_id != problem.problem_id for known in self.problems)

    async def _judge(self, key: str, package: Package, kind: str, draft: Callable[[], Awaitable[Problem]]) -> Verdict:
        """Validate a candidate and put it through both gates."""
        started = time.monotonic()
        problem, reason = None, ""
        try:
            drafted = await draft()
            if refused := self._refused(drafted):
                raise Rejected(refused)
            await validate.pass_gates(self.backend, KIND, drafted)
            problem = drafted.model_copy(update={"oracle_passed": True, "null_failed": True})
        except Rejected as why:
            reason = str(why)
        ended = time.monotonic()
        elapsed, self._last = ended - self._last, ended
        return Verdict(
            key=key,
            package=package.name,
            kind=kind,
            seconds=ended - started,
            elapsed=elapsed,
            problem=problem,
            reason=reason,
        )
