"""Where one-site bugs can go in a function: found in the syntax tree, one kind after the other."""

import ast
from collections.abc import Iterator

from sandboxes.problems.swe.sites.expressions import in_expression
from sandboxes.problems.swe.sites.place import Places, Site
from sandboxes.problems.swe.sites.statements import Function, in_defaults, in_statement

__all__ = ["KINDS", "Function", "Site", "sites"]

KINDS = tuple(
    "arguments arithmetic assign boolean branch compare constant conversion default early except guard index keyword loop "
    "name negated not raise return slice statement variable".split()
)


def sites(function: Function, lines: list[str]) -> Iterator[Site]:
    """Every splice in one function of a file with these lines; functions within it are visited on their own."""
    at = Places(lines)
    yield from in_defaults(function, at)
    bound = _bound(function)
    constants = [d for d in (*function.args.defaults, *function.args.kw_defaults) if d and not _constant(d)]
    stack: list[tuple[ast.AST, bool]] = [(node, False) for node in (*constants, *function.body)]
    while stack:
        node, looped = stack.pop()
        # Places inside f-strings are wrong before Python 3.12.
        if isinstance(node, ast.JoinedStr | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        here = getattr(node, "lineno", 0)
        yield from in_statement(node, at, looped=looped and isinstance(function, ast.FunctionDef))
        yield from in_expression(node, at, [name for name, line in bound.items() if line < here])
        inside = looped or isinstance(node, ast.For | ast.While)
        stack.extend((child, inside) for child in _children(node))


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns"):
            yield from (v for v in (value if isinstance(value, list) else [value]) if isinstance(v, ast.AST))


def _bound(function: Function) -> dict[str, int]:
    """A function's variables, with the line from which each has a value; `self` is none."""
    arguments = function.args
    given = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    bound = {name: function.lineno for name in given if name not in ("self", "cls")}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound[node.id] = min(node.lineno, bound.get(node.id, node.lineno))
    return dict(sorted(bound.items(), key=lambda one: one[1]))


def _constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)
