"""The columns of three public formats, and how a row of each becomes a candidate.

* `swebench`: SWE-bench (arXiv 2310.06770) and what follows it: `patch` repairs, `test_patch` adds the tests.
* `swesmith`: SWE-smith (arXiv 2504.21798): `patch` puts the bug in.
* `r2e`: R2E-Gym (arXiv 2504.07164): two commits, and tests that come with the row.
"""

import json
import posixpath
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from sandboxes.problems.foreign import BadRow, Terms
from sandboxes.problems.swe.importing.candidate import Candidate, layout_of
from sandboxes.problems.swe.importing.git import Clones, applied

R2E_TESTS = "r2e_tests"


def _list(value: Any) -> Any:
    """Lists of tests are lists, or JSON texts of lists."""
    return json.loads(value) if isinstance(value, str) else value


def _object(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


Tests = Annotated[tuple[str, ...], BeforeValidator(_list)]
Object = Annotated[dict[str, Any], BeforeValidator(_object)]


class Row(BaseModel, ABC):
    """A row's columns; others are in `model_extra`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    @abstractmethod
    def candidate(self, clones: Clones, terms: Terms) -> Candidate:
        """BadRow where the row's commit or patch cannot be had."""


class SweBench(Row):
    instance_id: str
    repo: str
    base_commit: str
    problem_statement: str
    patch: str
    test_patch: str
    FAIL_TO_PASS: Tests
    PASS_TO_PASS: Tests

    def candidate(self, clones: Clones, terms: Terms) -> Candidate:
        base = clones.tree(clones.find(self.repo), self.base_commit)
        tested = applied(self.test_patch, base, what="test_patch")
        after = applied(self.patch, tested, what="patch")
        tests = _files(self.FAIL_TO_PASS, self.PASS_TO_PASS)
        changed = [path for path in _changed(base, after) if tested.get(path) == base.get(path)]
        return Candidate(
            name=self.instance_id,
            layout=layout_of(_name(self.repo), after, changed, tests, terms),
            label=self.base_commit[:12],
            before=base,
            after=after,
            statement=self.problem_statement,
            test_files=tests,
            fail_to_pass=self.FAIL_TO_PASS,
            pass_to_pass=self.PASS_TO_PASS,
            metadata=self.model_extra or {},
        )


class SweSmith(Row):
    instance_id: str
    repo: str
    patch: str
    FAIL_TO_PASS: Tests
    PASS_TO_PASS: Tests
    problem_statement: str = ""
    base_commit: str | None = None
    image_name: str | None = None

    def candidate(self, clones: Clones, terms: Terms) -> Candidate:
        # "swesmith/owner__name.1a2b3c4d": a mirror of owner/name whose first commit is the release at 1a2b3c4d.
        short, _, commit = self.repo.rpartition("/")[2].partition(".")
        clone = clones.find(self.repo, short.replace("__", "/"))
        mirror = commit and clone.name.removesuffix(".git").endswith(f".{commit}")
        at = self.base_commit or ("HEAD" if mirror or not commit else commit)
        after = clones.tree(clone, at)
        before = applied(self.patch, after, what="patch")
        tests = _files(self.FAIL_TO_PASS, self.PASS_TO_PASS)
        return Candidate(
            name=self.instance_id,
            layout=layout_of(_name(short), after, _changed(before, after), tests, terms),
            label=(commit or at)[:12],
            before=before,
            after=after,
            statement=self.problem_statement,
            test_files=tests,
            fail_to_pass=self.FAIL_TO_PASS,
            pass_to_pass=self.PASS_TO_PASS,
            metadata=(self.model_extra or {}) | ({"image_name": self.image_name} if self.image_name else {}),
            difficulty=0.8,
        )


class R2e(Row):
    repo_name: str
    commit_hash: str
    problem_statement: str
    parsed_commit_content: Object
    execution_result_content: Object
    expected_output_json: Object
    docker_image: str | None = None

    def candidate(self, clones: Clones, terms: Terms) -> Candidate:
        clone = clones.find(self.repo_name)
        base = clones.tree(clone, str(self.parsed_commit_content.get("old_commit_hash") or f"{self.commit_hash}^"))
        repaired = clones.tree(clone, self.commit_hash)
        tests = self._tests()
        changed = [path for path in _changed(base, repaired) if path.endswith(".py")]
        layout = layout_of(_name(self.repo_name), repaired, changed, tuple(tests), terms)
        wanted = frozenset(name for name, outcome in self.expected_output_json.items() if outcome == "PASSED")
        return Candidate(
            name=f"{_name(self.repo_name)}-{self.commit_hash[:12]}",
            layout=layout,
            label=self.commit_hash[:12],
            before=base,
            after=repaired | tests,
            statement=self.problem_statement,
            test_files=tuple(tests),
            passing=wanted,
            metadata=(self.model_extra or {}) | ({"docker_image": self.docker_image} if self.docker_image else {}),
        )

    def _tests(self) -> dict[str, bytes]:
        """The row's own test files, in a folder of their own as its authors have them."""
        names, codes = (self.execution_result_content.get(key) or [] for key in ("test_file_names", "test_file_codes"))
        if not names or len(names) != len(codes):
            raise BadRow(
                "execution_result_content has no test_file_names with as many test_file_codes: nothing to grade by"
            )
        tests = {
            f"{R2E_TESTS}/{posixpath.basename(name)}": code.encode() for name, code in zip(names, codes, strict=True)
        }
        if not all(path.endswith(".py") for path in tests):
            raise BadRow("test_file_names are not all Python files")
        return tests


FORMATS: dict[str, type[Row]] = {"r2e": R2e, "swebench": SweBench, "swesmith": SweSmith}
KNOWN = frozenset("hints_text created_at version environment_setup_commit difficulty env_type".split())


def parse(format: str, row: Mapping[str, Any]) -> Row:
    """A row with its columns checked. BadRow says which are missing or wrong."""
    try:
        return FORMATS[format].model_validate({name: value for name, value in row.items() if value is not None})
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, one['loc']))}: {one['msg'].lower()}" for one in error.errors()]
        raise BadRow(f"no {format} row: {'; '.join(wrong)}") from error


def _changed(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[str]:
    return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))


def _files(*tests: tuple[str, ...]) -> tuple[str, ...]:
    """The files that node ids lie in."""
    nodes = [node for group in tests for node in group]
    strange = [node for node in nodes if not node.partition("::")[0].endswith(".py")]
    if strange or not nodes:
        raise BadRow(
            f"{strange[0]!r} is no pytest node id (tests/test_x.py::test_y)" if nodes else "FAIL_TO_PASS names no test"
        )
    return tuple(sorted({node.partition("::")[0] for node in nodes}))


def _name(repo: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+-]", "-", repo.replace("/", "__"))
