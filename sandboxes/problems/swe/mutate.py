"""One-site bugs: found in the syntax tree, spliced as text, so that the rest of the file stays as its authors wrote it.

Pure and quick: one parse per file. Every mutation lies on one line, and can be undone by one replacement on that line.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(r"\w+|\s+|[<>=!]=|//|\*\*|[-+*/%&|^]=|[^\w\s]")

_COMPARE: dict[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Lt: ("<", ("<=", ">")),
    ast.LtE: ("<=", ("<", ">=")),
    ast.Gt: (">", (">=", "<")),
    ast.GtE: (">=", (">", "<=")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: ("is not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: ("not in", ("in",)),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, tuple[str, ...]]] = {
    ast.Add: ("+", ("-",)),
    ast.Sub: ("-", ("+",)),
    ast.Mult: ("*", ("+",)),
    ast.Div: ("/", ("*", "//")),
    ast.FloorDiv: ("//", ("/", "%")),
    ast.Mod: ("%", ("//",)),
    ast.BitAnd: ("&", ("|",)),
    ast.BitOr: ("|", ("&",)),
}
_PAIRS = (
    "min max", "any all", "lower upper", "startswith endswith", "lstrip rstrip", "find rfind", "index rindex",
    "split rsplit", "partition rpartition", "append appendleft", "pop popleft", "ljust rjust", "floor ceil",
)  # fmt: skip
_NAMES = {a: b for pair in _PAIRS for a, b in (pair.split(), reversed(pair.split()))}


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


@dataclass(frozen=True)
class _Site:
    """A raw splice, before it is widened to something unique: characters [start, end) of a line become `new`."""

    line: int
    start: int
    end: int
    new: str
    kind: str


def mutations(source: str) -> list[Mutation]:
    """Every mutation of functions and methods in a module, ordered by place. Invalid Python gives none."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    lines = source.split("\n")
    found: dict[tuple[int, int, str, str], Mutation] = {}
    for function, name in _functions(tree, ""):
        for site in _Finder(lines).sites(function):
            mutation = _widen(lines[site.line - 1], site, function, name)
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


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    """Functions with their qualified names, at any depth."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child, prefix + child.name
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)


def _widen(text: str, site: _Site, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> Mutation | None:
    """Take neighbouring tokens in until the new piece is unique in its line; the shortest such piece, or None."""
    before, after = text[: site.start], text[site.end :]
    lefts = _pieces(_TOKEN.findall(before)[::-1], to_left=True)
    rights = _pieces(_TOKEN.findall(after), to_left=False)
    mutated = before + site.new + after
    best: tuple[int, str, str] | None = None
    for left in lefts:
        for right in rights:
            new = left + site.new + right
            cost = len(left) + len(right)
            if new.strip() == new != "" and (best is None or cost < best[0]) and _count(mutated, new) == 1:
                best = (cost, left, right)
    if best is None:
        return None
    _, left, right = best
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
    return sum(text.startswith(part, at) for at in range(len(text) - len(part) + 1))


class _Finder:
    """Finds raw splices in one function. Columns of the tree are UTF-8 bytes; those of sites are characters."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def sites(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[_Site]:
        stack: list[ast.AST] = [*function.args.defaults, *(d for d in function.args.kw_defaults if d), *function.body]
        while stack:
            node = stack.pop()
            # Places inside f-strings are wrong before Python 3.12; nested functions are visited on their own.
            if isinstance(node, ast.JoinedStr | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            yield from self._at(node)
            stack.extend(self._children(node))

    def _children(self, node: ast.AST) -> Iterator[ast.AST]:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns"):
                continue
            yield from (v for v in (value if isinstance(value, list) else [value]) if isinstance(v, ast.AST))

    def _at(self, node: ast.AST) -> Iterator[_Site]:
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                old, news = _COMPARE[type(op)]
                yield from self._between(left, right, old, news, "compare")
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC and not _is_text(left):
                old, news = _ARITHMETIC[type(op)]
                yield from self._between(left, right, old, news, "arithmetic")
            case ast.AugAssign(target=target, op=ast.Add() | ast.Sub() as op, value=value) if not _is_text(value):
                old, news = ("+=", ("-=",)) if isinstance(op, ast.Add) else ("-=", ("+=",))
                yield from self._between(target, value, old, news, "arithmetic")
            case ast.BoolOp(op=op, values=[first, second]):
                old, new = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                yield from self._between(first, second, old, (new,), "boolean")
                yield from self._span(second, first, "", "guard", from_end_of=first)
            case ast.UnaryOp(op=ast.Not(), operand=operand) if node.lineno == operand.lineno:
                yield from self._text(node.lineno, self._col(node), self._col(operand), "", "not")
            case ast.Constant():
                yield from self._constant(node)
            case ast.Call():
                yield from self._call(node)
            case ast.Slice():
                yield from self._slice(node)
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield from self._span(value, value, "None", "return")
            case ast.If(test=ast.Name() | ast.Call() | ast.Attribute() | ast.Compare() as test):
                yield from self._text(test.lineno, self._col(test), self._col(test), "not ", "negated")
                yield from self._span(test, test, "False", "guard")
            case ast.Break():
                yield from self._text(node.lineno, self._col(node), self._col(node) + 5, "continue", "loop")
            case ast.Continue():
                yield from self._text(node.lineno, self._col(node), self._col(node) + 8, "break", "loop")

    def _constant(self, node: ast.Constant) -> Iterator[_Site]:
        if isinstance(node.value, bool):
            yield from self._span(node, node, str(not node.value), "constant")
        elif isinstance(node.value, int) and self._source(node).isdigit():
            for value in (node.value + 1, node.value - 1):
                if value >= 0:
                    yield from self._span(node, node, str(value), "constant")

    def _call(self, node: ast.Call) -> Iterator[_Site]:
        match node.func:
            case ast.Name(id=name) if name in _NAMES:
                yield from self._span(node.func, node.func, _NAMES[name], "name")
            case ast.Attribute(attr=name, end_lineno=int(line), end_col_offset=int(end)) if name in _NAMES:
                column = self._character(line, end)
                yield from self._text(line, column - len(name), column, _NAMES[name], "name")
        match node.args:
            case [ast.Name(id=first) as a, ast.Name(id=second) as b, *_] if first != second and a.lineno == b.lineno:
                gap = self.lines[a.lineno - 1][self._col(a) + len(first) : self._col(b)]
                if gap.strip() == ",":
                    yield from self._span(b, a, f"{second}{gap}{first}", "arguments")

    def _slice(self, node: ast.Slice) -> Iterator[_Site]:
        if node.step is not None or node.lineno != node.end_lineno:
            return
        if node.lower is not None:
            yield from self._span(node.lower, node.lower, "", "slice")
        if node.upper is not None:
            yield from self._span(node.upper, node.upper, "", "slice")
        if (node.lower is None) != (node.upper is None):
            text, bound = self._source(node), node.lower or node.upper
            assert bound is not None
            if text in (f"{self._source(bound)}:", f":{self._source(bound)}"):
                swapped = f":{self._source(bound)}" if node.lower is not None else f"{self._source(bound)}:"
                yield from self._span(node, node, swapped, "slice")

    def _between(self, left: ast.expr, right: ast.expr, old: str, news: tuple[str, ...], kind: str) -> Iterator[_Site]:
        """Replace an operator between two expressions; only where all of it is on one line."""
        if left.end_lineno != right.lineno or left.end_col_offset is None:
            return
        start = self._character(right.lineno, left.end_col_offset)
        gap = self.lines[right.lineno - 1][start : self._col(right)]
        at = gap.find(old)
        if at >= 0 and not gap.strip("() ").replace(old, "", 1).strip("() "):
            for new in news:
                yield from self._text(right.lineno, start + at, start + at + len(old), new, kind)

    def _span(
        self, last: ast.expr, first: ast.expr, new: str, kind: str, *, from_end_of: ast.expr | None = None
    ) -> Iterator[_Site]:
        """Replace from the start (or the end) of one expression to the end of another on the same line."""
        line = last.lineno
        if first.lineno != line or last.end_lineno != line or first.end_lineno != line or last.end_col_offset is None:
            return
        end = self._character(line, last.end_col_offset)
        start = self._col(first)
        if from_end_of is not None and from_end_of.end_col_offset is not None:
            start = self._character(line, from_end_of.end_col_offset)
            if (
                "(" in self.lines[line - 1][start : self._col(last)]
                or ")" in self.lines[line - 1][start : self._col(last)]
            ):
                return
        yield from self._text(line, start, end, new, kind)

    def _text(self, line: int, start: int, end: int, new: str, kind: str) -> Iterator[_Site]:
        if self.lines[line - 1][start:end] != new:
            yield _Site(line, start, end, new, kind)

    def _source(self, node: ast.expr) -> str:
        """An expression's text; empty where it spans lines."""
        if node.lineno != node.end_lineno or node.end_col_offset is None:
            return ""
        return self.lines[node.lineno - 1][self._col(node) : self._character(node.lineno, node.end_col_offset)]

    def _col(self, node: ast.expr | ast.stmt) -> int:
        return self._character(node.lineno, node.col_offset)

    def _character(self, line: int, offset: int) -> int:
        text = self.lines[line - 1]
        return offset if text.isascii() else len(text.encode()[:offset].decode())


def _is_text(node: ast.expr) -> bool:
    """Whether an operand is a string: then `%` formats and `+` joins, and a swap is only a TypeError."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
