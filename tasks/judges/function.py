"""A Python function as a judge: `package.module:function`, called with a Trajectory in processes of its own.

It returns a score, a dict with `score` and whatever else it measured, or None where it cannot tell. A process that is past
the deadline is killed; what the function raises is no verdict.
"""

import asyncio
import importlib.util
import json
import math
import pickle
import sys
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from lakehouse.records import digest
from lakehouse.trajectory import Trajectory
from tasks.judges.base import JudgeFailed, JudgeMisconfigured, Measured, Verdict, cause, malformed, refused, scored

START_S = 120.0  # importing what the function needs


class FunctionJudge:
    """Calls a function. Its processes are started when they are first needed, at most one per call in progress."""

    def __init__(self, function: str, *, deadline_s: float = 60.0) -> None:
        self.function, self.deadline_s = function, deadline_s
        self.producer = f"function {function} {digest(_source(function).read_bytes())[:12]}"
        self._idle: list[asyncio.subprocess.Process] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        for process in self._idle:
            await _end(process)
        self._idle.clear()

    async def ask(self, trajectory: Trajectory) -> Measured:
        """What the function says. JudgeFailed where it raised or took too long."""
        process = self._idle.pop() if self._idle else await self._start()
        try:
            async with asyncio.timeout(self.deadline_s):
                answer = await _call(process, trajectory)
        except TimeoutError:
            await _end(process)
            raise JudgeFailed(f"{self.function} took more than {self.deadline_s:g} s and was ended") from None
        except (OSError, asyncio.IncompleteReadError):
            await _end(process)
            raise JudgeFailed(f"{self.function} ended its process") from None
        except BaseException:  # a cancellation too: no process outlives its judgement
            await _end(process)
            raise
        self._idle.append(process)
        if "error" in answer:
            raise JudgeFailed(f"{self.function} raised {answer['error']}")
        return _measured(answer["value"])

    async def _start(self) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tasks.judges.worker", self.function, stdin=pipe, stdout=pipe, limit=2**24
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_S):
                ready = json.loads(await process.stdout.readline() or b'{"error": "its process ended while it began"}')
        except TimeoutError:
            ready = {"error": f"importing it took more than {START_S:g} s"}
        if "error" in ready:
            await _end(process)
            raise JudgeMisconfigured(f"{self.function} cannot be called: {ready['error']}")
        return process


async def _call(process: asyncio.subprocess.Process, trajectory: Trajectory) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    packed = pickle.dumps(trajectory)
    process.stdin.write(len(packed).to_bytes(8, "big") + packed)
    await process.stdin.drain()
    line = await process.stdout.readline()
    if not line:
        raise asyncio.IncompleteReadError(line, None)
    found: dict[str, Any] = json.loads(line)
    return found


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


def _measured(answer: Any) -> Measured:
    """What the function returned, as a verdict."""
    if answer is None:
        return refused("the function returned None")
    if isinstance(answer, int | float):
        answer = {"score": float(answer)}
    if not isinstance(answer, dict):
        return malformed(f"a function returns a number, a dict or None, not {type(answer).__name__}", str(answer))
    if isinstance(answer.get("score"), float) and not math.isfinite(answer["score"]):
        return malformed("a score is finite", str(answer))
    try:
        return scored(Verdict(**answer))
    except (ValidationError, TypeError) as error:
        return malformed(cause(error) if isinstance(error, ValidationError) else str(error), str(answer))


def _source(function: str) -> Path:
    """The file of a function's module, found without running it. JudgeMisconfigured where there is none."""
    module, _, name = function.partition(":")
    try:
        spec = importlib.util.find_spec(module) if module and name.isidentifier() else None
    except (ImportError, ValueError) as error:
        raise JudgeMisconfigured(f"{function!r} cannot be imported: {error}") from error
    if spec is None or not spec.origin:
        raise JudgeMisconfigured(f"{function!r} is no function that can be imported, such as my_package.judges:concise")
    return Path(spec.origin)
