"""Real bugs: the source of one release with the tests of the next, and the repair as calls of `edit`."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from sandboxes.problems.swe.packages import PACKAGES, Package
from sandboxes.problems.swe.sources import pristine
from sandboxes.problems.swe.spec import Edit
from sandboxes.problems.swe.validate import Rejected

MOST_LINES = 60  # changed source lines
MOST_FAILING = 40
LEAST_KEPT = 30  # tests that pass before and after


@dataclass(frozen=True)
class Pair:
    """Two releases of a package, and what the later one says it changed."""

    package: str
    old: str
    new: str
    sentence: str

    @property
    def layout(self) -> Package:
        return PACKAGES[self.package]


PAIRS = (
    Pair(
        "parse",
        "1.20.0",
        "1.20.1",
        "`%f` should match one to six digits, and a Parser should have a read-only property `format`.",
    ),
    Pair(
        "parse",
        "1.20.1",
        "1.20.2",
        "A field name may contain hyphens; names that only differ in hyphens must not collide.",
    ),
    Pair(
        "parse",
        "1.20.2",
        "1.21.0",
        "Integer fields should understand the grouping options `,` and `_`, as in {:,} and {:_}, and signs.",
    ),
    Pair(
        "cachetools",
        "7.2.7",
        "7.2.8",
        "Cached methods and the method keys should accept a keyword argument called `self`.",
    ),
    Pair(
        "semver",
        "3.0.2",
        "3.0.4",
        "Version.compare should take an instance of a subclass; a subclass given a plain Version raises TypeError.",
    ),
    Pair(
        "mistune",
        "3.1.0",
        "3.1.1",
        "Ruby text may contain spaces and is rendered without <rb>; an empty table of contents renders as nothing.",
    ),
)


def repair(pair: Pair) -> list[Edit]:
    """The edits that turn the earlier sources into the later ones. Rejected where edits cannot do it."""
    before, after = _sources(pair, pair.old), _sources(pair, pair.new)
    if before.keys() != after.keys():
        raise Rejected("files come or go")
    edits = [edit for path in before for edit in _meaningful(path, before[path], after[path])]
    if sum(edit.new.count("\n") + 1 for edit in edits) > MOST_LINES:
        raise Rejected("too many lines change")
    return edits


def broken(pair: Pair) -> dict[str, bytes]:
    """The earlier sources with the later tests."""
    after = pristine(pair.package, pair.new)
    sources = {path: text.encode() for path, text in _sources(pair, pair.old).items()}
    return sources | {path: content for path, content in after.items() if not pair.layout.is_source(path)}


def _sources(pair: Pair, version: str) -> Mapping[str, str]:
    tree = pristine(pair.package, version)
    return {path: content.decode() for path, content in tree.items() if pair.layout.is_source(path)}


def _meaningful(path: str, before: str, after: str) -> list[Edit]:
    """The hunks without which the module would mean something else: no docstrings, comments, version numbers."""
    needed = hunks(path, before, after)
    goal = _meaning(after)
    if _meaning(before) == goal:
        return []
    for edit in list(needed):
        rest = [other for other in needed if other is not edit]
        if _meaning(applied(before, rest)) == goal:
            needed = rest
    return needed


def _meaning(source: str) -> str | None:
    """A module's syntax tree as text, without docstrings and its version. None where it is not Python."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [line for line in body if not _idle(line)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _idle(line: ast.stmt) -> bool:
    match line:
        case ast.Expr(value=ast.Constant(value=str())) | ast.Assign(targets=[ast.Name(id="__version__")]):
            return True
    return False


def applied(source: str, edits: Sequence[Edit]) -> str:
    """The source after edits that start at the first character of their lines, last line first."""
    lines = source.split("\n")
    for edit in edits:
        lines[edit.line - 1 : edit.line + edit.old.count("\n")] = edit.new.split("\n")
    return "\n".join(lines)


def hunks(path: str, before: str, after: str) -> list[Edit]:
    """One edit per changed run of lines, last first, so that the line numbers of the others stay right."""
    old, new = before.split("\n"), after.split("\n")
    edits = []
    for tag, i1, i2, j1, j2 in reversed(SequenceMatcher(None, old, new, autojunk=False).get_opcodes()):
        if tag == "equal":
            continue
        # An insertion or a deletion takes a line along that stays; blank lines alone are nothing to search for.
        while i1 > 0 and (j1 == j2 or not any(line.strip() for line in old[i1:i2])):
            i1, j1 = i1 - 1, j1 - 1
        while i2 < len(old) and not any(line.strip() for line in old[i1:i2]):  # at the top of a file, the line below
            i2, j2 = i2 + 1, j2 + 1
        edits.append(Edit(path=path, line=i1 + 1, old="\n".join(old[i1:i2]), new="\n".join(new[j1:j2])))
    return edits
