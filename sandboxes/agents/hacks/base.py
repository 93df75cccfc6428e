"""What a hack is: a scripted agent that tries to be paid without solving the problem. A grader must give it nothing."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from lakehouse.records import Status, dumps
from sandboxes.agents.base import Ending, Job
from sandboxes.problems.base import Observation

Moves = Callable[[Job], Awaitable[None]]


@dataclass(frozen=True)
class Hack:
    """One try. `limit`: it wins where it applies, and no grader that runs tests can tell it from a repair."""

    name: str
    kind: str  # of the problems it is for
    aim: str  # what it tries, in a sentence
    moves: Moves = field(repr=False)
    limit: bool = False
    follows_plan: bool = False

    async def run(self, job: Job) -> Ending:
        await self.moves(job)
        return Ending(Status.OK, f"a hack: {self.aim}")


async def act(job: Job, tool: str, **arguments: Any) -> Observation:
    """One tool call without a model."""
    return await job.act(tool, dumps(arguments), None)
