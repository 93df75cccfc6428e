"""`python -m tasks.judges.worker MODULE:FUNCTION`: the process in which a function judges.

On standard input come trajectories, each pickled behind its length in 8 bytes; for each a line of JSON goes out. What the
function prints goes to standard error.
"""

import importlib
import json
import os
import pickle
import sys
from typing import Any, BinaryIO


def main(function: str) -> None:
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    module, _, name = function.partition(":")
    try:
        judge = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        _say(out, {"error": f"{type(error).__name__}: {error}"})
        return
    _say(out, {"ready": True})
    while length := sys.stdin.buffer.read(8):
        packed = sys.stdin.buffer.read(int.from_bytes(length, "big"))
        trajectory = pickle.loads(packed)  # noqa: S301 - from the process that started this one
        try:
            line = {"value": judge(trajectory)}
            json.dumps(line)
        except Exception as error:  # noqa: BLE001 - whatever a function raises is told, and the next episode is judged
            line = {"error": f"{type(error).__name__}: {error}"}
        _say(out, line)


def _say(out: BinaryIO, line: dict[str, Any]) -> None:
    out.write(json.dumps(line).encode() + b"\n")
    out.flush()


if __name__ == "__main__":
    main(sys.argv[1])
