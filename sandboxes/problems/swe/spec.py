"""A swe problem's `spec`: which release, what is wrong with it, what its tests must say."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from lakehouse.records import Problem
from sandboxes.problems.base import EnvironmentFailure
from sandboxes.problems.swe import mutate, repositories
from sandboxes.problems.swe.packages import Package
from sandboxes.problems.swe.repositories import Validated
from sandboxes.problems.swe.sources import layout, pristine

DATA = Path(__file__).with_name("data")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Bug(_Model):
    """A one-site mutation: see `mutate.Mutation`."""

    path: str
    line: int
    column: int
    old: str
    new: str
    kind: str
    function: str
    first_line: int
    last_line: int

    @property
    def mutation(self) -> mutate.Mutation:
        return mutate.Mutation(**self.model_dump(exclude={"path"}))


class Edit(_Model):
    """One call of the tool `edit`."""

    path: str
    line: int
    old: str
    new: str

    def arguments(self, shown: str | None) -> dict[str, str | int]:
        """The call's arguments, in the tool's order; the path only where it is not the file that is shown."""
        call: dict[str, str | int] = {"old": self.old, "new": self.new, "line": self.line}
        return call if self.path == shown else call | {"path": self.path}


class Spec(_Model):
    """Tests are those of `tests_version`. Where no `bug` was put in, `version` is the source before its authors mended it."""

    package: str
    version: str
    sha256: str
    tests_version: str
    hint: int
    bug: Bug | None
    repair: tuple[Edit, ...]  # the oracle's edits, in order
    test_files: tuple[str, ...]  # what grading runs
    fail_to_pass: tuple[str, ...]
    duration_s: float  # of a validated grading
    also: tuple[Bug, ...] = ()  # further bugs, on other lines
    commands: tuple[str, ...] = ()  # what the oracle runs first: files that the repair adds or removes
    metadata: dict[str, Any] = {}  # what an imported problem said besides

    def dump(self) -> str:
        """As JSON, without what is absent: a new field gives no problem a new edition."""
        return self.model_dump_json(exclude_defaults=True)

    @property
    def bugs(self) -> tuple[Bug, ...]:
        """The mutations that were put in; none where the bug is its authors' own."""
        return () if self.bug is None else (self.bug, *self.also)

    @property
    def layout(self) -> Package:
        """Where code and tests lie; EnvironmentFailure where the package is not known."""
        return layout(self.package, self.tests_version)

    @property
    def pass_to_pass(self) -> tuple[str, ...]:
        """Every test of these files that passes on the repaired source and is not in `fail_to_pass`."""
        known = nodes(self.package, self.tests_version)
        failing = set(self.fail_to_pass)
        return tuple(node for file in self.test_files for node in known[file] if node not in failing)

    @property
    def shown(self) -> str | None:
        """The file whose lines the statement shows, if it shows any."""
        return self.bug.path if self.bug is not None and self.hint >= 3 else None

    def broken(self) -> dict[str, bytes]:
        """The work tree an agent is given."""
        return mutated(pristine(self.package, self.version), self.bugs)

    def judged(self, tree: dict[str, bytes]) -> dict[str, bytes]:
        """A work tree with every test and support file replaced by the original of `tests_version`."""
        original = pristine(self.package, self.tests_version)
        sources = {path: content for path, content in tree.items() if self.layout.is_source(path)}
        return sources | {path: content for path, content in original.items() if not self.layout.is_source(path)}


def mutated(tree: Mapping[str, bytes], bugs: Iterable[Bug]) -> dict[str, bytes]:
    """A tree with bugs put in; each is on a line of its own, so the order does not matter."""
    broken = dict(tree)
    for bug in bugs:
        broken[bug.path] = mutate.apply(broken[bug.path].decode(), bug.mutation).encode()
    return broken


def read_spec(problem: Problem) -> Spec:
    """The spec of a problem of this kind; EnvironmentFailure where it is none."""
    try:
        return Spec.model_validate_json(problem.spec)
    except ValidationError as error:
        raise EnvironmentFailure(f"{problem.problem_id} has no valid swe spec: {error}") from error


@lru_cache(maxsize=1)
def _shipped() -> dict[str, dict[str, list[str]]]:
    path = DATA / "nodes.json"
    known: dict[str, dict[str, list[str]]] = json.loads(path.read_text()) if path.is_file() else {}
    return known


def _known(package: str, version: str) -> dict[str, list[str]] | None:
    """Test file -> names of its tests: shipped, else as first validated on this machine."""
    shipped = _shipped().get(f"{package}=={version}")
    if shipped is not None:
        return shipped
    found = repositories.validated(package, version)
    return None if found is None else found.tests


def learn(package: str, version: str, tests: Mapping[str, Sequence[str]], duration_s: float = 0.0) -> float:
    """Take note of a release that was just validated (test file -> ids of its tests), unless it is known already.

    Gives the duration that holds: validating again makes the same problem, and not a new edition of it.
    """
    if f"{package}=={version}" in _shipped():
        return duration_s
    names = {file: [node.removeprefix(f"{file}::") for node in ids] for file, ids in tests.items()}
    return repositories.remember(package, version, Validated(tests=names, duration_s=duration_s)).duration_s


def write_known(path: Path, releases: Collection[tuple[str, str]]) -> None:
    """Write what is known about these releases, one line each, as the shipped file has it."""
    known = {f"{package}=={version}": _known(package, version) for package, version in releases}
    lines = [f"{json.dumps(key)}: {json.dumps(known[key])}" for key in sorted(known)]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def nodes(package: str, version: str) -> dict[str, list[str]]:
    """Test file -> ids of its tests that passed in every validation of the repaired source."""
    release = _known(package, version)
    if release is None:
        raise EnvironmentFailure(f"the tests of {package} {version} were never validated here: build or import again")
    return {file: [f"{file}::{name}" for name in names] for file, names in release.items()}
