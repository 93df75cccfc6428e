"""An agent's own bug is `agent_error` and never a reward, whatever it had done by then."""

import pytest

from flows.cli.attack import rewards
from lakehouse.records import Status
from sandboxes.agents import AGENTS
from sandboxes.agents.base import Ending
from sandboxes.agents.base import play as make_calls
from sandboxes.attack import play
from sandboxes.problems.search.build import build


class NoBackend:
    """Search asks for no box."""

    name = "none"

    async def start(self, spec):
        raise AssertionError


class Buggy:
    """Solves the problem, then fails in its own code."""

    name = "buggy"
    follows_plan = True

    def __init__(self, error):
        self.error = error

    async def run(self, job):
        await make_calls(job, job.plan)
        if self.error is not None:
            raise self.error
        return Ending(Status.OK)


@pytest.mark.parametrize(
    "error", [KeyError("a typo"), ValueError("bad JSON"), AssertionError(), RecursionError(), ZeroDivisionError()]
)
async def test_an_exception_in_an_agents_code_is_agent_error_and_its_reward_is_null(monkeypatch, error):
    monkeypatch.setitem(AGENTS, "buggy", Buggy(error))
    result = await play("buggy", build(n=3)[0], NoBackend())
    assert result.episode.status == Status.AGENT_ERROR
    assert type(error).__name__ in result.episode.error
    assert result.actions and result.evidence == []
    assert rewards("search", [result]) == [None]


async def test_the_same_agent_without_the_bug_is_paid(monkeypatch):
    monkeypatch.setitem(AGENTS, "buggy", Buggy(None))
    result = await play("buggy", build(n=3)[0], NoBackend())
    assert rewards("search", [result]) == [1.0]
