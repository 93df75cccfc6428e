"""Fixed tool calls without a model: for tests, and to see what the oracle does."""

from collections.abc import Sequence

from lakehouse.records import Status
from sandboxes.agents.base import Ending, Job, play
from sandboxes.problems.base import ToolCall


class Scripted:
    """Plays the given tool calls, or the oracle's where none are given."""

    name = "scripted"
    follows_plan = True

    def __init__(self, calls: Sequence[ToolCall] | None = None) -> None:
        self._calls = calls

    async def run(self, job: Job) -> Ending:
        done = await play(job, job.plan if self._calls is None else self._calls)
        return Ending(Status.OK, None if done else "the script ended before the environment was done")
