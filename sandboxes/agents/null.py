"""The agent that does nothing. A problem it scores on is broken."""

from lakehouse.records import Status
from sandboxes.agents.base import Ending, Job


class Null:
    """Stops at once."""

    name = "null"
    follows_plan = False

    async def run(self, job: Job) -> Ending:
        return Ending(Status.OK, "the null agent does nothing")
