"""The `swe` kind."""

import asyncio
from collections.abc import Sequence

from lakehouse.records import Problem
from sandboxes.backends.base import Backend
from sandboxes.problems.base import Environment, Fact, ToolCall
from sandboxes.problems.swe.env import SweEnvironment
from sandboxes.problems.swe.grade import solved
from sandboxes.problems.swe.spec import read_spec
from sandboxes.problems.swe.within import within
from sandboxes.prompts import SHIPPED, Prompts


class SweKind:
    """`base.Kind` over releases of real packages."""

    name = "swe"
    boxed = True

    async def open(self, problem: Problem, backend: Backend, prompts: Prompts = SHIPPED) -> Environment:
        """The environment of one episode; no box yet. The first problem of a release fetches its source."""
        spec = read_spec(problem)
        start = await asyncio.to_thread(spec.broken)
        return SweEnvironment(problem, spec, start, within(backend, spec.layout.image), prompts)

    def expert(self, problem: Problem) -> Sequence[ToolCall]:
        spec = read_spec(problem)
        commands = [ToolCall("run", {"command": command}) for command in spec.commands]
        return [*commands, *(ToolCall("edit", edit.arguments(spec.shown)) for edit in spec.repair), ToolCall("submit")]

    def solved(self, facts: Sequence[Fact]) -> bool:
        return solved(facts)


KIND = SweKind()
