"""The `python` kind."""

from collections.abc import Sequence

from lakehouse.records import Problem
from sandboxes.backends.base import Backend
from sandboxes.problems.base import Environment, Fact, ToolCall
from sandboxes.problems.python.env import PythonEnvironment, read_spec
from sandboxes.prompts import SHIPPED, Prompts


class PythonKind:
    """`base.Kind` over problems whose answer is a number."""

    name = "python"
    boxed = True

    async def open(self, problem: Problem, backend: Backend, prompts: Prompts = SHIPPED) -> Environment:
        """The environment of one episode; a box is started when code is run first."""
        return PythonEnvironment(problem, read_spec(problem), backend, prompts)

    def expert(self, problem: Problem) -> Sequence[ToolCall]:
        return read_spec(problem).expert

    def solved(self, facts: Sequence[Fact]) -> bool:
        return any(fact.name == "answer" and fact.value["match"] is True for fact in facts)


KIND = PythonKind()
