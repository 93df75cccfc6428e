"""Bugs made of whole statements: something is left out, comes too early, or goes the other way."""

import ast
from collections.abc import Iterator

from sandboxes.problems.swe.sites.expressions import is_text
from sandboxes.problems.swe.sites.place import Places, Site

Function = ast.FunctionDef | ast.AsyncFunctionDef
_LIKE = {
    "AttributeError": "TypeError",
    "IndexError": "KeyError",
    "KeyError": "IndexError",
    "TypeError": "ValueError",
    "ValueError": "TypeError",
}
_RETURNABLE = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.BinOp, ast.IfExp)


def in_defaults(function: Function, at: Places) -> Iterator[Site]:
    """Other values for the constants among a function's default arguments."""
    for default in (*function.args.defaults, *filter(None, function.args.kw_defaults)):
        match default:
            case ast.Constant(value=bool() as value):
                yield from at.span(default, str(not value), "default")
            case ast.Constant(value=int() as value) if at.source(default).isdigit():
                yield from at.span(default, str(value + 1), "default")
            case ast.Constant(value=None):
                yield from at.span(default, "0", "default")
            case ast.Constant(value=str() as value):
                yield from at.span(default, "''" if value else "' '", "default")


def in_statement(node: ast.AST, at: Places, *, looped: bool) -> Iterator[Site]:
    """Splices at one statement, not below it. `looped`: it is in a loop of a function that is not async."""
    match node:
        case ast.Expr(value=ast.Call()) if at.alone(node):
            yield from at.span(node, "pass", "statement")
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) if at.alone(node):
            yield from at.span(node, "pass", "statement")
        case ast.Assign(targets=[ast.Name()], value=value) if looped and at.alone(node):
            if isinstance(value, _RETURNABLE):
                yield from at.span(node, f"return {at.source(value)}", "early")
        case ast.AugAssign(target=target, op=op, value=value):
            if isinstance(op, ast.Add | ast.Sub) and not is_text(value):
                old, new = ("+=", "-=") if isinstance(op, ast.Add) else ("-=", "+=")
                yield from at.between(target, value, old, (new,), "arithmetic")
            if isinstance(op, ast.Add | ast.BitOr):
                yield from at.between(target, value, "+=" if isinstance(op, ast.Add) else "|=", ("=",), "assign")
            if at.alone(node):
                yield from at.span(node, "pass", "statement")
        case ast.Raise() if at.alone(node):
            yield from at.span(node, "pass", "raise")
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield from at.span(value, "None", "return")
        case ast.If(test=test, orelse=orelse):
            if isinstance(test, ast.Name | ast.Call | ast.Attribute | ast.Compare):
                yield from at.text(test.lineno, at.start(test), at.start(test), "not ", "negated")
                yield from at.span(test, "False", "guard")
            if len(orelse) == 1 and isinstance(orelse[0], ast.If):
                yield from at.word(orelse[0], "elif", "if", "branch")
        case ast.While(body=body, orelse=[]) if not _jumps(body):
            yield from at.word(node, "while", "if", "loop")
        case ast.Break():
            for new in ("continue", "pass"):
                yield from at.span(node, new, "loop")
        case ast.Continue():
            for new in ("break", "pass"):
                yield from at.span(node, new, "loop")
        case ast.ExceptHandler(type=ast.Name(id=name) as caught) if name in _LIKE:
            yield from at.span(caught, _LIKE[name], "except")
        case ast.ExceptHandler(type=ast.Tuple(elts=[_, *_, last] as caught)):
            yield from at.after(caught[-2], last, "," if len(caught) == 2 else "", "except")


def _jumps(body: list[ast.stmt]) -> bool:
    """Whether a loop's body has a `break` or `continue`, be it of a loop within."""
    return any(isinstance(node, ast.Break | ast.Continue) for line in body for node in ast.walk(line))
