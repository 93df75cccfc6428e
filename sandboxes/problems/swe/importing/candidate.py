"""A problem of somebody else's, before it was validated: two work trees and a statement."""

import posixpath
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from sandboxes.problems.foreign import Terms
from sandboxes.problems.swe.patch import NEVER
from sandboxes.problems.swe.repositories import Layout

TESTS = ("test_*.py", "*/test_*.py", "*_test.py")
SUPPORT = ("tests/*", "*/tests/*", "test/*", "*/test/*", "conftest.py", "*/conftest.py")
PROSE = (".md", ".rst")


@dataclass(frozen=True)
class Candidate:
    """`before` is what the agent is given; `after` is that with the repair and with the tests that grade it."""

    name: str  # of the instance
    layout: Layout
    label: str  # of the versions: a commit, or a word
    before: Mapping[str, bytes]
    after: Mapping[str, bytes]
    statement: str  # empty: told from the failing behaviour
    test_files: tuple[str, ...]  # what grading runs
    fail_to_pass: tuple[str, ...] | None = None  # node ids; None: found by running
    pass_to_pass: tuple[str, ...] | None = None
    passing: frozenset[str] | None = (
        None  # "Class.test" of the tests that pass after the repair, whichever file they are in
    )
    metadata: Mapping[str, Any] = field(default_factory=dict)
    difficulty: float = 0.9


def layout_of(
    name: str,
    tree: Mapping[str, bytes],
    changed: Collection[str],
    tests: Collection[str],
    terms: Terms,
) -> Layout:
    """Where code and tests lie in a repository that does not say so. `changed`: what the repair changes; `tests`: test files."""
    repaired = [path for path in changed if path not in tests]
    support = tuple(pattern for pattern in SUPPORT if not any(fnmatchcase(path, pattern) for path in repaired))
    others = [path for path in repaired if not path.endswith((".py", *PROSE)) and posixpath.basename(path) not in NEVER]
    roots = [
        root for root in ("src", "lib") if any(path.startswith(f"{root}/") and path.endswith(".py") for path in tree)
    ]
    return Layout(
        name=name,
        licence=terms.licence,
        split=terms.split,
        sources=("*.py", *sorted(others)),
        tests=tuple(dict.fromkeys((*TESTS, *sorted(tests)))),
        support=support,
        paths=(*roots, "."),
        image=terms.image,
    )
