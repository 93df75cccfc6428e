"""Runs in the box: the last of some cells, in the state that the earlier ones left. Standard library only; no import of ours.

Nothing of a command survives it in a box, so there is no process to keep: the earlier cells are run again, unheard, and then
the new one. The random generator and the hash seed are fixed, so what they computed they compute again.
Standard input: JSON {"cells": [code, ...], "done": a word to say on standard error once the last cell has ended}.
Exit status: 1 where the last cell raised.
"""

import ast
import contextlib
import json
import os
import random
import sys
import traceback
import types
from collections.abc import Iterator


def run(code: str, name: str, space: dict[str, object]) -> None:
    """Run a cell; the value of a last expression is printed, as at a prompt."""
    tree = ast.parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), space)  # noqa: S102 - this program is the interpreter
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), name, "eval"), space)  # noqa: S307 - as above
        if value is not None:
            print(repr(value))


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """Standard output and error go nowhere, also those of child processes."""
    kept = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        for descriptor in (*kept, nowhere):
            os.close(descriptor)


def main() -> int:
    told = json.loads(sys.stdin.read())
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    random.seed(0)
    *earlier, last = told["cells"]
    for number, code in enumerate(earlier, start=1):
        with unheard(), contextlib.suppress(BaseException):  # what it raised was shown when it was new
            run(code, f"<cell {number}>", module.__dict__)
    status = 0
    try:
        run(last, f"<cell {len(earlier) + 1}>", module.__dict__)
    except SystemExit:
        pass
    except BaseException as error:  # noqa: BLE001 - whatever a cell raises is shown, as at a prompt
        status = 1
        shown = error.__traceback__.tb_next.tb_next if error.__traceback__ and error.__traceback__.tb_next else None
        print("".join(traceback.format_exception(type(error), error, shown)), end="", file=sys.stderr)
    sys.stdout.flush()
    print(told["done"], end="", file=sys.stderr, flush=True)
    return status


if __name__ == "__main__":
    os._exit(main())
