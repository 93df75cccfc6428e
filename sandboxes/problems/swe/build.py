"""Make the shipped problem set again: `python -m sandboxes.problems.swe.build OUT`. Needs the package index and boxes.

The same seed draws the same candidates; what is kept is what holds up in boxes.
"""

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from lakehouse.records import Problem, digest
from sandboxes.backends import choose
from sandboxes.backends.base import Backend
from sandboxes.problems.swe import drafts, pairs, spec, validate
from sandboxes.problems.swe.kind import KIND
from sandboxes.problems.swe.packages import PACKAGES, Package
from sandboxes.problems.swe.shipped import NODES, PROBLEMS, write
from sandboxes.problems.swe.spec import Bug
from sandboxes.problems.swe.validate import Gold, Rejected, Symptom

HINTS = (3, 3, 3, 2, 3, 3, 1, 3, 3, 3, 0, 3)  # of a package's problems, in turn
PER_PACKAGE = 24


@dataclass
class Tally:
    """Rates and rejects."""

    tried: int = 0
    kept: Counter[str] = field(default_factory=Counter)  # by package
    rejected: Counter[str] = field(default_factory=Counter)  # by reason
    seconds: float = 0.0

    def __str__(self) -> str:
        per = self.seconds / max(1, self.tried)
        kept = sum(self.kept.values())
        return f"{kept} of {self.tried} kept, {per:.1f} s each; kept {dict(self.kept)}; rejected {dict(self.rejected)}"


class Verdict(BaseModel):
    """What a candidate came to, as the journal keeps it, so that a build that was stopped goes on where it was."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    seconds: float
    problem: Problem | None
    reason: str = ""


class Builder:
    """Validates candidates one after the other. `problems` holds those that passed everything."""

    def __init__(self, out: Path, backend: Backend) -> None:
        self.backend = backend
        self.tally = Tally()
        self.problems: list[Problem] = []
        self._gold: dict[tuple[str, str], Gold] = {}
        out.mkdir(parents=True, exist_ok=True)
        self._journal = out / "journal.jsonl"
        lines = self._journal.read_text().splitlines() if self._journal.exists() else []
        self._known = {verdict.key: verdict for verdict in map(Verdict.model_validate_json, lines)}

    async def package(self, package: Package, number: int, seed: int) -> None:
        """Up to `number` procedural problems of one package."""
        gold = await self.gold(package, package.version)
        spread, kept = drafts.Spread(), 0
        for bug in drafts.candidates(package, seed, gold.lines):
            if kept == number:
                break
            hint = HINTS[kept % len(HINTS)]
            # What cannot be read off the broken line is no exercise in reading it.
            if not spread.room(bug) or (hint == 3 and bug.kind in drafts.LOSSY):
                continue

            async def draft(bug: Bug = bug, hint: int = hint) -> Problem:
                tree = drafts.broken(package, bug)
                symptom = await validate.symptom(self.backend, package, tree, gold)
                return drafts.procedural(package, bug, symptom, hint=hint)

            key = digest(package.name, package.version, bug.model_dump_json(), str(hint))
            if await self._keep(package.name, key, draft):
                spread.add(bug)
                kept += 1

    async def pair(self, pair: pairs.Pair) -> None:
        """The problem between two releases."""

        async def draft() -> Problem:
            repair = pairs.repair(pair)
            gold = await self.gold(pair.layout, pair.new)
            tree = pairs.broken(pair)
            symptom: Symptom = await validate.symptom(self.backend, pair.layout, tree, gold, most=pairs.MOST_FAILING)
            if len(gold.all) - len(symptom.fail_to_pass) < pairs.LEAST_KEPT:
                raise Rejected("too few tests pass before and after")
            return drafts.pair(pair.layout, pair.old, pair.new, repair, symptom, pair.sentence)

        await self._keep(f"{pair.package} (versions)", digest(pair.package, pair.old, pair.new, pair.sentence), draft)

    async def gold(self, package: Package, version: str) -> Gold:
        """Validated once per release, and made known to grading."""
        key = (package.name, version)
        if key not in self._gold:
            self._gold[key] = await validate.gold(self.backend, package, version)
            spec.learn(package.name, version, self._gold[key].tests)
        return self._gold[key]

    async def _keep(self, name: str, key: str, draft: Callable[[], Awaitable[Problem]]) -> bool:
        """Whether a candidate held up, now or in an earlier build; counts it either way."""
        verdict = self._known.get(key)
        if verdict is None:
            verdict = await self._judge(key, draft)
            with self._journal.open("a") as journal:
                journal.write(verdict.model_dump_json() + "\n")
        self.tally.tried += 1
        self.tally.seconds += verdict.seconds
        if verdict.problem is None:
            self.tally.rejected[verdict.reason] += 1
            return False
        self.tally.kept[name] += 1
        self.problems.append(verdict.problem)
        print(f"{verdict.problem.problem_id}: {verdict.seconds:.1f} s", flush=True)
        return True

    async def _judge(self, key: str, draft: Callable[[], Awaitable[Problem]]) -> Verdict:
        """Validate a candidate and put it through both gates."""
        started = time.monotonic()
        try:
            problem = await draft()
            await validate.pass_gates(self.backend, KIND, problem)
        except Rejected as reason:
            return Verdict(key=key, seconds=time.monotonic() - started, problem=None, reason=str(reason))
        passed = problem.model_copy(update={"oracle_passed": True, "null_failed": True})
        return Verdict(key=key, seconds=time.monotonic() - started, problem=passed)


def build(
    out: Path, *, per_package: int = PER_PACKAGE, packages: Sequence[str] = (), seed: int = 0, backend: str = "auto"
) -> Tally:
    """Build and write `problems.jsonl` and `nodes.json` into a folder; rates and rejects. A stopped build goes on."""
    builder = Builder(out, choose(backend))
    names = list(packages) or list(PACKAGES)

    async def work() -> None:
        for name in names:
            await builder.package(PACKAGES[name], per_package, seed)
            for pair in (pair for pair in pairs.PAIRS if pair.package == name):
                await builder.pair(pair)
            # The bugs of these are validated: only what the statement shows differs.
            write(out, [*builder.problems, *filter(None, map(drafts.pointed, builder.problems))])
            print(f"{name}: {builder.tally}", flush=True)

    asyncio.run(work())
    return builder.tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help=f"folder for {PROBLEMS} and {NODES}")
    parser.add_argument("--per-package", type=int, default=PER_PACKAGE)
    parser.add_argument("--packages", nargs="*", default=(), choices=sorted(PACKAGES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="auto")
    given = parser.parse_args()
    build(given.out, per_package=given.per_package, packages=given.packages, seed=given.seed, backend=given.backend)


if __name__ == "__main__":
    main()
