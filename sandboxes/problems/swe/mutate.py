"""One-site bugs: found in the syntax tree, spliced as text, so that the rest of the file stays as its authors wrote it.

Pure and quick: one parse per file. Every mutation lies on one line, and can be undone by one replacement on that line.
"""

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import product

from sandboxes.problems.swe.sites import KINDS, Function, Site, sites

_TOKEN = re.compile(r"\w+|\s+|[<>=!]=|//|\*\*|[-+*/%&|^]=|[^\w\s]")


@dataclass(frozen=True)
class Mutation:
    """A bug at one place. `old` and `new` are pieces of its line before and after; the line after has `new` exactly once."""

    line: int  # 1-based
    old: str
    new: str
    kind: str
    function: str  # "parse", "Version.bump"
    first_line: int  # of the function, its `def` line
    last_line: int
    column: int  # 0-based, in characters, where `old` begins


def mutations(source: str, kinds: Collection[str] = KINDS) -> list[Mutation]:
    """Every mutation of functions and methods in a module, ordered by place. Invalid Python gives none."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    lines = source.split("\n")
    found: dict[tuple[int, int, str, str], Mutation] = {}
    for function, name in _functions(tree, ""):
        for site in sites(function, lines):
            mutation = _widen(lines[site.line - 1], site, function, name) if site.kind in kinds else None
            if mutation is not None:
                found.setdefault((mutation.line, mutation.column, mutation.old, mutation.new), mutation)
    return sorted(found.values(), key=lambda m: (m.line, m.column, m.kind, m.new))


def apply(source: str, mutation: Mutation) -> str:
    """The source with the bug in it. ValueError where the source is not the one the mutation was found in."""
    lines = source.split("\n")
    text = lines[mutation.line - 1] if mutation.line <= len(lines) else ""
    end = mutation.column + len(mutation.old)
    if text[mutation.column : end] != mutation.old:
        raise ValueError(f"line {mutation.line} does not hold {mutation.old!r}: this is another version of the source")
    lines[mutation.line - 1] = text[: mutation.column] + mutation.new + text[end:]
    return "\n".join(lines)


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[Function, str]]:
    """Functions with their qualified names, at any depth."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child, prefix + child.name
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)


def _widen(text: str, site: Site, function: Function, name: str) -> Mutation | None:
    """Take neighbouring tokens in until the new piece is unique in its line; the shortest such piece, or None."""
    before, after = text[: site.start], text[site.end :]
    lefts = _pieces(_TOKEN.findall(before)[::-1], to_left=True)
    rights = _pieces(_TOKEN.findall(after), to_left=False)
    mutated = before + site.new + after
    for left, right in sorted(product(lefts, rights), key=lambda pieces: len(pieces[0]) + len(pieces[1])):
        new = left + site.new + right
        if new.strip() == new != "" and _count(mutated, new) == 1:
            break
    else:
        return None
    old = left + text[site.start : site.end] + right
    last = function.end_lineno or function.lineno
    column = site.start - len(left)
    return Mutation(site.line, old, left + site.new + right, site.kind, name, function.lineno, last, column)


def _pieces(tokens: list[str], *, to_left: bool, limit: int = 8) -> list[str]:
    """The empty string, the nearest token, the nearest two ..."""
    pieces = [""]
    for token in tokens[:limit]:
        pieces.append(token + pieces[-1] if to_left else pieces[-1] + token)
    return pieces


def _count(text: str, part: str) -> int:
    """How often a part occurs, overlaps included."""
    count, at = 0, text.find(part)
    while at >= 0:
        count, at = count + 1, text.find(part, at + 1)
    return count
