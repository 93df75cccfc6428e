"""What an agent changed, computed here from two file trees; nothing is asked of the box."""

import ast
import difflib
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass

from lakehouse.records import digest
from sandboxes.problems.swe.packages import Package

LONGEST_DIFF = 100_000  # characters kept as evidence
LARGEST_FILE = 1 << 20  # bytes; a larger one is not a source file
NEVER = frozenset(  # whatever a layout's patterns say: what pytest, setuptools or the interpreter read by name
    "conftest.py pytest.ini .pytest.ini pyproject.toml tox.ini setup.cfg setup.py sitecustomize.py usercustomize.py".split()
)
SUFFIXES = (".pth", ".pyc", ".pyo", ".so", ".pyd")


@dataclass(frozen=True)
class Patch:
    """Changed source files. `files` maps a path to its new content, None where it was deleted."""

    files: Mapping[str, bytes | None]
    refused: tuple[str, ...]  # changed outside the sources: tests, configuration, new files elsewhere
    diff: str

    @property
    def empty(self) -> bool:
        return not self.files

    @property
    def digest(self) -> str:
        """Over paths and contents: equal patches have equal digests."""
        parts = [
            part
            for path in sorted(self.files)
            for part in (path, self.files[path] or b"", str(self.files[path] is None))
        ]
        return digest(*parts)

    def applied(self, tree: Mapping[str, bytes]) -> dict[str, bytes]:
        """The tree with the patch in it."""
        merged = {**tree, **self.files}
        return {path: content for path, content in merged.items() if content is not None}

    def syntax_error(self) -> str | None:
        """The first changed module that is not Python, or None. Such a patch needs no box to be judged."""
        for path, content in self.files.items():
            if content is not None:
                try:
                    ast.parse(content)
                except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
                    return f"{path}: {type(error).__name__}: {error}"
        return None


def between(before: Mapping[str, bytes], after: Mapping[str, bytes], layout: Package) -> Patch:
    """The patch that leads from one tree to the other, kept to what the layout calls sources."""
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    files: dict[str, bytes | None] = {}
    refused: list[str] = []
    for path in changed:
        content = after.get(path)
        if layout.is_source(path) and len(content or b"") <= LARGEST_FILE and _allowed(path, before, layout):
            files[path] = content
        elif not _by_product(path):
            refused.append(path)
    diff = "".join(_diff(path, before.get(path), after.get(path)) for path in files)
    return Patch(files, tuple(refused), diff[:LONGEST_DIFF])


def _allowed(path: str, before: Mapping[str, bytes], layout: Package) -> bool:
    """Whether a source may be changed: not by its name, and where it is new only inside a package that is there."""
    name = posixpath.basename(path)
    if name in NEVER or name.endswith(SUFFIXES):
        return False
    return path in before or _top(path, layout) in {_top(known, layout) for known in before if layout.is_source(known)}


def _top(path: str, layout: Package) -> str:
    """The name under which a module is imported first: of its outermost package, or its own."""
    roots = sorted((posixpath.normpath(root) for root in layout.paths), key=len, reverse=True)
    for root in roots:
        if root != "." and path.startswith(root + "/"):
            path = path[len(root) + 1 :]
            break
    return path.split("/")[0]


def _by_product(path: str) -> bool:
    """What running things leaves behind, and nobody meant."""
    return path.endswith((".pyc", ".pyo")) or ".pytest_cache/" in path


def _diff(path: str, old: bytes | None, new: bytes | None) -> str:
    def lines(content: bytes | None) -> list[str]:
        return (content or b"").decode(errors="replace").splitlines(keepends=True)

    before, after = ("/dev/null" if old is None else f"a/{path}"), ("/dev/null" if new is None else f"b/{path}")
    text = difflib.unified_diff(lines(old), lines(new), before, after)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in text)
