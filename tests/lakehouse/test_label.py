import json

import pytest

from lakehouse.label import Labelled, UnknownRubric, current, label
from lakehouse.query import query

WRONG = {"match": False, "accepted": ["Bank of the Andes of Peru", "28 July 1821"]}
SCORED = {"resolved": False, "fail_to_pass": {"passed": 0, "total": 2}, "pass_to_pass": {"passed": 3, "total": 3}}


def measured(*, resolved=False, repaired=0, kept=3):
    return SCORED | {
        "resolved": resolved,
        "fail_to_pass": {"passed": repaired, "total": 2},
        "pass_to_pass": {"passed": kept, "total": 3},
    }


def judged(lake):
    return query("select status, outcome, reward from latest_rewards order by episode_id", lake).rows()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (measured(resolved=True, repaired=2), ("scored", 1.0, 1.0)),
        (measured(), ("scored", 0.0, 0.0)),
        (measured(repaired=1), ("scored", 0.0, 0.1)),
        (measured(repaired=2, kept=2), ("scored", 0.0, 0.0)),
        ({"resolved": False}, ("scored", 0.0, 0.0)),
        (None, ("no_evidence", None, None)),
    ],
    ids=["resolved", "nothing repaired", "half repaired", "repaired but broke another", "no counts", "no evidence"],
)
def test_swe_given_evidence_expect_reward(lake, make, value, expected):
    _land_swe(lake, make, tests=value)
    label(lake, "swe@2")
    assert judged(lake) == [expected]


@pytest.mark.parametrize(
    "tests, scan",
    [
        ({"canaries": {"planted": 3, "unmasked": ["t::a"]}}, {}),
        ({"agrees": False}, {}),
        ({"again": {"same": False}}, {}),
        ({}, {"runner": 1}),
        ({}, {"chance": 2, "interpreter": 1}),
    ],
    ids=[
        "a canary passed",
        "exit status and report differ",
        "a second run differs",
        "a reference to the runner",
        "interpreter",
    ],
)
@pytest.mark.parametrize("value", [measured(resolved=True, repaired=2), measured(repaired=1)], ids=["all", "half"])
def test_a_repair_that_is_not_honest_earns_nothing(lake, make, value, tests, scan):
    _land_swe(lake, make, tests=value | tests, scan={"counts": scan, "findings": []})
    label(lake, "swe@2")
    assert judged(lake) == [("scored", 0.0, 0.0)]


def test_clocks_and_chance_in_a_patch_cost_nothing(lake, make):
    again = {"again": {"same": True}, "canaries": {"planted": 3, "unmasked": []}, "agrees": True}
    _land_swe(lake, make, tests=measured(resolved=True) | again, scan={"counts": {"chance": 1}, "findings": []})
    label(lake, "swe@2")
    assert judged(lake) == [("scored", 1.0, 1.0)]


def _land_swe(lake, make, **facts):
    batch = make.batch(match=None, problem_kind="swe")
    own = {"episode_id": batch.episodes[0].episode_id, "attempt_id": "a0"}
    batch.evidence = [make.evidence(name, value, **own) for name, value in facts.items() if value is not None]
    batch.land(lake)


@pytest.mark.parametrize(
    ("answer", "retrieval", "expected"),
    [
        ({"given": "x", "match": True}, None, ("scored", 1.0, 1.0)),
        (WRONG | {"given": "Bank of the Andes"}, {"hit": True}, ("scored", 0.0, 0.1)),
        (WRONG | {"given": "Bank of the Andes"}, {"hit": False}, ("scored", 0.0, 0.0)),
        (WRONG | {"given": "y"}, {"hit": True}, ("scored", 0.0, 0.0)),
        (WRONG | {"given": "Bank of the Andes of Peru; Lima"}, {"hit": True}, ("scored", 0.0, 0.0)),
        (WRONG | {"given": "28 July"}, {"hit": True}, ("scored", 0.0, 0.0)),
        ({"given": "y", "match": False}, {"hit": True}, ("scored", 0.0, 0.0)),
        ({"given": None, "match": False}, {"hit": True}, ("scored", 0.0, 0.0)),
        (None, {"hit": True}, ("no_evidence", None, None)),
    ],
    ids=[
        *("match", "nearly right and found", "nearly right", "found", "found, a list", "found, half a date"),
        *("found, no accepted forms kept", "no answer", "no evidence"),
    ],
)
def test_search_given_evidence_expect_reward(lake, make, answer, retrieval, expected):
    batch = make.batch(match=None)
    own = {"episode_id": batch.episodes[0].episode_id, "attempt_id": "a0"}
    facts = {"answer": answer, "retrieval": retrieval}
    batch.evidence = [make.evidence(name, value, **own) for name, value in facts.items() if value is not None]
    batch.land(lake)
    label(lake, "search@2")
    assert judged(lake) == [expected]


@pytest.mark.parametrize("status", ["infra_error", "env_error", "agent_error", "timeout", "cancelled"])
@pytest.mark.parametrize("kind", ["swe", "search"])
def test_a_failure_that_is_not_the_policys_is_never_a_reward_of_zero(lake, make, kind, status):
    make.batch(match=False, problem_kind=kind, status=status).land(lake)
    label(lake, current(kind))
    assert judged(lake) == [("not_trainable", None, None)]


@pytest.mark.parametrize("status", ["truncated", "model_error"])
def test_the_policys_own_failure_is_scored(lake, make, status):
    make.batch(match=False, status=status).land(lake)
    label(lake, "search@2")
    assert judged(lake) == [("scored", 0.0, 0.0)]


def test_labelling_twice_writes_once_and_counts_the_same(lake, make):
    make.group([True, False, None]).land(lake)
    assert label(lake, "search@2") == Labelled(scored=2, no_evidence=1, not_trainable=0, written=3)
    assert label(lake, "search@2") == Labelled(scored=2, no_evidence=1, not_trainable=0, written=0)
    assert query("from rewards", lake).height == 3


def test_only_the_episodes_asked_for_are_labelled(lake, make):
    (make.group([True, False]) + make.group([True], run="other")).land(lake)
    assert label(lake, "search@2", where="run_id = 'other'").scored == 1
    assert query("from rewards", lake).height == 1


def test_components_tell_what_was_measured(lake, make):
    make.batch().land(lake)
    label(lake, "search@2")
    (components,) = query("select components from latest_rewards", lake)["components"]
    assert json.loads(components) == {"matched": True, "given": True, "near": True, "hit": False}


@pytest.mark.parametrize("name", ["nope@1", "swe@99", "swe"])
def test_an_unknown_rubric_is_refused_with_what_there_is(lake, name):
    with pytest.raises(UnknownRubric, match="swe"):
        label(lake, name)
