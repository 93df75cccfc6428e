"""Bugs within an expression."""

import ast
from collections.abc import Iterator, Sequence

from sandboxes.problems.swe.sites.place import Places, Site

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
_CONVERSIONS = {"abs", "dict", "float", "frozenset", "int", "list", "reversed", "set", "sorted", "str", "tuple"}


def in_expression(node: ast.AST, at: Places, names: Sequence[str]) -> Iterator[Site]:
    """Splices at one node, not below it. `names` are the function's variables that are bound there."""
    match node:
        case ast.Compare(left=left, ops=ops, comparators=rights):
            for op, (first, second) in zip(ops, zip([left, *rights], rights, strict=False), strict=True):
                yield from at.between(first, second, *_COMPARE[type(op)], "compare")
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC and not is_text(left):
            yield from at.between(left, right, *_ARITHMETIC[type(op)], "arithmetic")
        case ast.BoolOp(op=op, values=values):
            if len(values) == 2:
                old, new = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                yield from at.between(values[0], values[1], old, (new,), "boolean")
            yield from at.after(values[-2], values[-1], "", "guard")
        case ast.UnaryOp(op=ast.Not(), operand=operand) if node.lineno == operand.lineno:
            yield from at.text(node.lineno, at.start(node), at.start(operand), "", "not")
        case ast.Constant():
            yield from _constant(node, at)
        case ast.Call():
            yield from _call(node, at)
        case ast.Slice():
            yield from _slice(node, at)
        case ast.Subscript(slice=ast.Constant(value=0) as index) if index.value is not False:
            yield from at.span(index, "-1", "index")
        case ast.Subscript(slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1)) as index):
            yield from at.span(index, "0", "index")
        case ast.IfExp(body=body, orelse=orelse, test=test):
            yes, condition, no = map(at.source, (body, test, orelse))
            if at.source(node) == f"{yes} if {condition} else {no}":
                yield from at.span(node, f"{no} if {condition} else {yes}", "branch")
        case ast.Name(id=name, ctx=ast.Load()) if name in names:
            place = names.index(name)
            for other in {names[place - 1], names[(place + 1) % len(names)]} - {name}:
                yield from at.span(node, other, "variable")


def is_text(node: ast.AST) -> bool:
    """Whether an operand is a string: then `%` formats and `+` joins, and a swap is only a TypeError."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _constant(node: ast.Constant, at: Places) -> Iterator[Site]:
    if isinstance(node.value, bool):
        yield from at.span(node, str(not node.value), "constant")
    elif isinstance(node.value, int) and at.source(node).isdigit():
        for value in (node.value + 1, node.value - 1):
            if value >= 0:
                yield from at.span(node, str(value), "constant")


def _call(node: ast.Call, at: Places) -> Iterator[Site]:
    match node.func:
        case ast.Name(id=name) if name in _NAMES:
            yield from at.span(node.func, _NAMES[name], "name")
        case ast.Attribute(attr=name, end_lineno=int(line)) if name in _NAMES:
            yield from at.text(line, at.end(node.func) - len(name), at.end(node.func), _NAMES[name], "name")
        case ast.Name(id=name) if name in _CONVERSIONS and len(node.args) == 1 and not node.keywords:
            whole, inner = at.source(node), at.source(node.args[0])
            if whole == f"{name}({inner})" and not isinstance(node.args[0], ast.GeneratorExp | ast.Starred):
                yield from at.span(node, inner if isinstance(node.args[0], _TIGHT) else f"({inner})", "conversion")
    match node.args:
        case [ast.Name(id=first) as a, ast.Name(id=second) as b, *_] if first != second and a.lineno == b.lineno:
            text = at.source_between(a, b)
            if text.strip() == ",":
                yield from at.span(a, f"{second}{text}{first}", "arguments", until=b)
    if node.keywords and node.keywords[-1].arg and (node.args or node.keywords[:-1]):
        before = [*node.args, *(keyword.value for keyword in node.keywords[:-1])][-1]
        yield from at.after(before, node.keywords[-1].value, "", "keyword")


_TIGHT = ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant


def _slice(node: ast.Slice, at: Places) -> Iterator[Site]:
    if node.step is not None or node.lineno != node.end_lineno:
        return
    for end in filter(None, (node.lower, node.upper)):
        yield from at.span(end, "", "slice")
    bound = node.lower or node.upper
    if bound is not None and (node.lower is None or node.upper is None):
        text = at.source(bound)
        if at.source(node) in (f"{text}:", f":{text}"):
            yield from at.span(node, f":{text}" if node.lower is not None else f"{text}:", "slice")
