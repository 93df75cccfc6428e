"""The `terminal` kind."""

from collections.abc import Sequence

from lakehouse.records import Problem
from sandboxes.backends.base import Backend
from sandboxes.problems.base import Environment, Fact, ToolCall
from sandboxes.problems.terminal.env import TerminalEnvironment
from sandboxes.problems.terminal.spec import read_spec
from sandboxes.prompts import SHIPPED, Prompts


class TerminalKind:
    """`base.Kind` over imported task folders."""

    name = "terminal"
    boxed = True

    async def open(self, problem: Problem, backend: Backend, prompts: Prompts = SHIPPED) -> Environment:
        """The environment of one episode, its box set up."""
        environment = TerminalEnvironment(problem, read_spec(problem), backend, prompts)
        try:
            await environment.begin()
        except BaseException:  # also where the opening is cancelled: nobody else knows the box
            await environment.close()
            raise
        return environment

    def expert(self, problem: Problem) -> Sequence[ToolCall]:
        spec = read_spec(problem)
        return [ToolCall("bash", {"command": spec.moved(spec.solution)}), ToolCall("submit")]

    def solved(self, facts: Sequence[Fact]) -> bool:
        return any(fact.name == "verifier" and (fact.value["reward"] or 0) >= 1 for fact in facts)


KIND = TerminalKind()
