import json

import pytest

from lakehouse.label import Labelled, current, label
from lakehouse.query import query


def judged(lake):
    return query("select status, outcome, reward from latest_rewards order by episode_id", lake).rows()


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
