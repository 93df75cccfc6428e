"""The gates a problem must pass before it may be trained on: the oracle scores full marks, doing nothing scores none."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse.records import Problem
from sandboxes.backends.base import Backend
from sandboxes.problems.base import Kind, ToolCall

GATE_S = 300.0  # one gate: open, act, grade


@dataclass(frozen=True)
class Gates:
    """What the gates said."""

    oracle_passed: bool
    null_failed: bool

    @property
    def passed(self) -> bool:
        return self.oracle_passed and self.null_failed


async def gates(kind: Kind, problem: Problem, backend: Backend) -> Gates:
    """Both gates, on the environment itself, without a model. Raises what the environment raises."""
    oracle = await _solves(kind, problem, backend, kind.expert(problem))
    null = await _solves(kind, problem, backend, ())
    return Gates(oracle_passed=oracle, null_failed=not null)


async def _solves(kind: Kind, problem: Problem, backend: Backend, calls: Sequence[ToolCall]) -> bool:
    """Whether these tool calls, all of which must work, earn full marks."""
    async with asyncio.timeout(GATE_S):
        environment = await kind.open(problem, backend)
        try:
            for call in calls:
                seen = await environment.call(call.name, call.arguments)
                if seen.is_error:
                    return False
            return kind.solved(await environment.grade())
        finally:
            await environment.close()
