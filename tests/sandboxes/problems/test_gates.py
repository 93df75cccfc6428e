import json

import pytest

from sandboxes.problems.base import EnvironmentFailure
from sandboxes.problems.gates import Gates, gates
from sandboxes.problems.kinds import KINDS, kind_of
from sandboxes.problems.search.build import build


class NoBackend:
    """Where no code runs, no box is asked for."""

    name = "none"

    async def start(self, spec):
        raise AssertionError


@pytest.fixture(scope="module")
def problem():
    return build(n=3)[0]


async def test_every_problem_of_a_sample_passes_both_gates():
    for problem in build(n=30):
        assert (await gates(KINDS["search"], problem, NoBackend())).passed, problem.problem_id


async def test_a_problem_whose_oracle_is_wrong_fails_the_oracle_gate(problem):
    spec = json.loads(problem.spec)
    broken = problem.model_copy(update={"spec": json.dumps({**spec, "accepted": ["something else"]})})
    assert await gates(KINDS["search"], broken, NoBackend()) == Gates(oracle_passed=False, null_failed=True)


async def test_a_problem_whose_oracle_stumbles_fails_the_oracle_gate(problem):
    spec = json.loads(problem.spec)
    path = [["open", {"title": "nowhere"}], *spec["path"]]
    broken = problem.model_copy(update={"spec": json.dumps({**spec, "path": path})})
    assert not (await gates(KINDS["search"], broken, NoBackend())).oracle_passed


async def test_a_kind_that_pays_for_nothing_fails_the_null_gate(problem):
    class Generous(type(KINDS["search"])):
        def solved(self, facts):
            return True

    assert not (await gates(Generous(), problem, NoBackend())).null_failed


def test_an_unknown_kind_is_named_with_those_there_are():
    with pytest.raises(EnvironmentFailure, match=r"'chess'.*search"):
        kind_of("chess")
