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


ERRORS = (KeyError("a typo"), ValueError("bad JSON"), AssertionError(), RecursionError(), ZeroDivisionError())


@pytest.fixture(scope="module")
def problems():
    return build(n=6)


async def test_an_exception_in_an_agents_code_is_agent_error_and_its_reward_is_null(monkeypatch, problems):
    results = []
    for error, problem in zip((*ERRORS, None), problems, strict=True):
        monkeypatch.setitem(AGENTS, "buggy", Buggy(error))
        results.append(await play("buggy", problem, NoBackend()))
    *failed, fine = results
    for result, error in zip(failed, ERRORS, strict=True):
        assert result.episode.status == Status.AGENT_ERROR
        assert type(error).__name__ in result.episode.error
        assert result.actions and result.evidence == []
    assert fine.episode.status == Status.OK
    assert rewards("search", results) == [None] * len(ERRORS) + [1.0]  # the same agent without a bug is paid
