"""What turns a test into one that must fail where the test passes: one assertion turned round or given a wrong value.

Only assertions that a passing run is sure to reach are touched: those directly in the test's body.
"""

import ast
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

OPPOSITE: dict[type[ast.cmpop], bytes] = {
    ast.Eq: b"!=",
    ast.NotEq: b"==",
    ast.Lt: b">=",
    ast.GtE: b"<",
    ast.Gt: b"<=",
    ast.LtE: b">",
    ast.In: b"not in",
    ast.NotIn: b"in",
    ast.Is: b"is not",
    ast.IsNot: b"is",
}
OPERATOR = re.compile(rb"==|!=|<=|>=|<|>|\bnot\s+in\b|\bin\b|\bis\s+not\b|\bis\b")
METHODS = {
    "assertEqual": "assertNotEqual",
    "assertEquals": "assertNotEqual",
    "assertTrue": "assertFalse",
    "assertIn": "assertNotIn",
    "assertIs": "assertIsNot",
    "assertIsNone": "assertIsNotNone",
    "assertIsInstance": "assertNotIsInstance",
    "assertGreater": "assertLessEqual",
    "assertLess": "assertGreaterEqual",
}
METHODS |= {other: one for one, other in METHODS.items() if one != "assertEquals"}
EQUALITY = re.compile(r"^(assert_?(list_?|dict_?|tuple_?|set_?)?equals?|assert_?eq|eq_?)$", re.IGNORECASE)
RARE = (b"BufferError", b"FloatingPointError", b"ReferenceError", b"ChildProcessError", b"InterruptedError")
UNDOING = re.compile(
    r"(clear|close|clean|delete|discard|pop|remove|reset|restore|rmtree|stop|undo|unlink|unregister|^set|chdir)",
    re.IGNORECASE,
)
UNSURE = (ast.Return, ast.Yield, ast.YieldFrom, ast.Try)  # what may leave before an assertion, or swallow it


@dataclass(frozen=True)
class Splice:
    """Bytes [start, end) of a file and what stands there instead."""

    start: int
    end: int
    text: bytes


def contradictions(test: ast.FunctionDef, source: bytes, lines: Sequence[int], rng: random.Random) -> list[Splice]:
    """Ways to contradict a test, the most different ones first; empty where none is sure. `lines`: start of each line.

    Where the body ends in assertions only these are used. Else those after which nothing is put back: a copy that fails before
    it has set a module's limit to what it was makes other tests fail, and with them an honest repair.
    """
    if any(isinstance(node, UNSURE) for statement in test.body for node in ast.walk(statement)):
        return []
    text = Text(source, lines)
    asserting = [list(_of(statement, text, rng)) for statement in test.body]
    at_the_end = list(takewhile(bool, reversed(asserting)))
    if not at_the_end:
        own = {node.id for node in ast.walk(test) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        both = zip(reversed(test.body), reversed(asserting), strict=True)
        at_the_end = [found for _, found in takewhile(lambda one: one[1] or not _undoes(one[0], own), both)]
    kinds: dict[str, list[Splice]] = {}
    for kind, splice in (one for found in reversed(at_the_end) for one in found):
        kinds.setdefault(kind, []).append(splice)
    picked = [rng.choice(splices) for splices in kinds.values()]
    rng.shuffle(picked)
    return picked


@dataclass(frozen=True)
class Text:
    """A source and where its nodes lie in it."""

    source: bytes
    lines: Sequence[int]

    def span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self.lines[node.lineno - 1] + node.col_offset,
            self.lines[node.end_lineno - 1] + node.end_col_offset,
        )

    def of(self, node: ast.expr) -> bytes:
        start, end = self.span(node)
        return self.source[start:end]

    def replaced(self, node: ast.expr, text: bytes) -> Splice:
        return Splice(*self.span(node), text)


def _undoes(statement: ast.stmt, own: set[str]) -> bool:
    """Whether a statement may put something back that outlives the test, as far as its looks tell. `own`: names that it assigns."""
    for node in ast.walk(statement):
        match node:
            case ast.Global():
                return True
            case (ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del())) as target:
                if not _of_test(target, own):
                    return True
            case ast.Call(func=ast.Attribute(attr=name) as function) if UNDOING.search(name):
                if not _of_test(function, own):
                    return True
            case ast.Call(func=ast.Name(id=name)) if UNDOING.search(name):
                return True
    return False


def _of_test(node: ast.expr, own: set[str]) -> bool:
    """Whether an attribute or item is of a name of the test's, or of the test itself."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return isinstance(node, ast.Name) and (node.id == "self" or node.id in own)


def _of(statement: ast.stmt, text: Text, rng: random.Random) -> Iterator[tuple[str, Splice]]:
    """The contradictions in a statement, with their kind."""
    match statement:
        case ast.Assert(test=test):
            yield from _asserted(test, text, rng)
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name) as function) as call):
            if name in METHODS:
                end = text.span(function)[1]
                yield "negated", Splice(end - len(name), end, METHODS[name].encode())
            if EQUALITY.match(name):
                yield from _arguments(call, text, rng)
        case ast.Expr(value=ast.Call(func=ast.Name(id=name)) as call) if EQUALITY.match(name):
            yield from _arguments(call, text, rng)
        case ast.With(items=[ast.withitem(context_expr=ast.Call(func=function, args=[error, *_]))]):
            if text.of(function) in (b"pytest.raises", b"raises", b"self.assertRaises"):
                yield "raised", text.replaced(error, rng.choice(RARE))
        case ast.For(iter=ast.List(elts=[_, *_]) | ast.Tuple(elts=[_, *_]), body=body, orelse=[]):
            if not any(isinstance(node, ast.Break | ast.Continue) for inner in body for node in ast.walk(inner)):
                for inner in body:
                    yield from _of(inner, text, rng)


def _asserted(test: ast.expr, text: Text, rng: random.Random) -> Iterator[tuple[str, Splice]]:
    match test:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            start, end = text.span(left)[1], text.span(right)[0]
            found = OPERATOR.search(text.source, start, end)
            if found is not None:
                yield "negated", Splice(*found.span(), OPPOSITE[type(operator)])
            if isinstance(operator, ast.Eq):
                yield "left", text.replaced(left, _wrong(left, text, rng))
                yield "right", text.replaced(right, _wrong(right, text, rng))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "negated", text.replaced(test, b"(" + text.of(operand) + b")")
        case _:
            yield "negated", text.replaced(test, b"not (" + text.of(test) + b")")


def _arguments(call: ast.Call, text: Text, rng: random.Random) -> Iterator[tuple[str, Splice]]:
    """Either side of an equality that is asserted by a function's first two arguments."""
    match call.args:
        case [ast.expr() as left, ast.expr() as right, *_] if not any(isinstance(a, ast.Starred) for a in call.args):
            yield "left", text.replaced(left, _wrong(left, text, rng))
            yield "right", text.replaced(right, _wrong(right, text, rng))


def _wrong(value: ast.expr, text: Text, rng: random.Random) -> bytes:
    """Something else than this value, of its looks where it is a constant."""
    match value:
        case ast.Constant(value=bool() as held):
            return repr(not held).encode()
        case ast.Constant(value=int() as held):
            return repr(held + rng.randint(1, 3)).encode()
        case ast.Constant(value=float() as held):
            return repr(2 * held + rng.randint(1, 3)).encode()
        case ast.Constant(value=str() as held):
            at = rng.randint(0, len(held))
            return ascii(held[:at] + rng.choice("aeinorst") + held[at:]).encode()
        case _:
            return b"[" + text.of(value) + b"]"
