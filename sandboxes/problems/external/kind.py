"""The `external` kind: nothing here plays it. `lakeloop ingest` makes episodes of what applications did."""

from collections.abc import Sequence

from lakehouse.records import Problem
from sandboxes.backends.base import Backend
from sandboxes.problems.base import Environment, EnvironmentFailure, Fact, ToolCall
from sandboxes.prompts import SHIPPED, Prompts


class ExternalKind:
    """`base.Kind`, as far as there is one."""

    name = "external"
    boxed = False

    async def open(self, problem: Problem, backend: Backend, prompts: Prompts = SHIPPED) -> Environment:
        """Always an EnvironmentFailure: the environment is in the application."""
        raise EnvironmentFailure(
            f"{problem.problem_id} is played by an application outside: start a gateway session with this as its task_id, "
            "and `lakeloop ingest` makes an episode of it"
        )

    def expert(self, problem: Problem) -> Sequence[ToolCall]:
        """None: the application has its own."""
        return ()

    def solved(self, facts: Sequence[Fact]) -> bool:
        """Whether the application gave 1 or more for the whole."""
        whole = [
            row["reward"] for fact in facts if fact.name == "rewards" for row in fact.value["rows"] if not row["call"]
        ]
        return bool(whole) and whole[-1] >= 1


KIND = ExternalKind()
