"""What another rubric would change, over evidence alone."""

import math

import pytest

from lakehouse.query import query
from lakehouse.rubrics import compare

NEAR = {"given": "Bank of the Andes", "match": False, "accepted": ["Bank of the Andes of Peru"]}


def answers(make, problem_id, *values):
    """A group with these answers, every page found."""
    batch = make.group([None] * len(values), problem_id)
    for episode, value in zip(batch.episodes, values, strict=True):
        own = {"episode_id": episode.episode_id, "attempt_id": "a0"}
        batch.evidence += [make.evidence("answer", value, **own), make.evidence("retrieval", {"hit": True}, **own)]
    return batch


RIGHT, WRONG = {"given": "x", "match": True}, {"given": "y", "match": False, "accepted": ["x"]}


def test_who_changes_and_by_how_much(lake, make):
    (answers(make, "p", RIGHT, WRONG, NEAR) + answers(make, "q", WRONG, WRONG)).land(lake)
    found = compare(lake, "search@1", "search@2")
    assert (found.episodes, found.groups) == (5, 2)
    assert found.outcome.changed == 0 and found.statuses == [] and found.group_states == []
    assert (found.reward.changed, found.reward.up, found.reward.down) == (3, 0, 3)
    assert math.isclose(found.reward.largest, 0.1) and math.isclose(found.reward.mean, 0.3 / 5)
    assert found.advantage.changed == 3  # a group without a solved episode gives no gradient before or after
    first = found.changed[0]
    assert first.problem_id == "p" and first.old_reward is not None
    assert query("from rewards", lake).is_empty()


def test_which_groups_become_trainable_and_which_do_not(own, lake, make):
    sample = "if(sample_index = 0, 1, 0)"
    own.paying("toy@1", "1")
    own.paying("toy@2", sample, outcome=sample)
    make.group([True, True, True]).land(lake)
    found = compare(lake, "toy@1", "toy@2")
    assert [(m.old, m.new, m.count) for m in found.group_states] == [("zero_variance_group", "trainable", 1)]
    assert (found.outcome.changed, found.outcome.down) == (2, 2)
    std = math.sqrt(1 / 3)
    assert sorted(round(one.new_advantage, 6) for one in found.changed) == sorted(
        round((reward - 1 / 3) / (std + 1e-4), 6) for reward in (1, 0, 0)
    )
    assert {one.old_advantage for one in found.changed} == {0.0}
    back = compare(lake, "toy@2", "toy@1", limit=1)
    assert [(m.old, m.new) for m in back.group_states] == [("trainable", "zero_variance_group")]
    assert len(back.changed) == 1


def test_parameters_and_selections_are_compared_too(own, lake, make):
    own.paying("toy@1", "$low", header="-- parameter low: 0.25\n")
    (make.group([True, True]) + make.group([True], run="other")).land(lake)
    found = compare(lake, "toy@1", "toy@1:low=0.5", where="run_id = 'other'")
    assert (found.old, found.new, found.episodes) == ("toy@1", "toy@1:low=0.5", 1)
    assert (found.reward.up, found.reward.mean) == (1, 0.25)


def test_rubrics_of_other_kinds_have_no_row(lake, make):
    make.group([True, False]).land(lake)
    found = compare(lake, "swe@1", "search@2")
    assert [(m.old, m.new, m.count) for m in found.statuses] == [("no_row", "scored", 2)]
    assert [(m.old, m.new, m.count) for m in found.group_states] == [("no_row", "trainable", 1)]
    assert found.advantage.changed == 2


@pytest.mark.parametrize("pair", [("search@1", "search@9"), ("nope@1", "search@1")])
def test_what_is_not_there_cannot_be_compared(lake, pair):
    with pytest.raises(LookupError, match="search@2"):
        compare(lake, *pair)


def test_an_empty_lake_has_no_differences(lake):
    found = compare(lake, "search@1", "search@2")
    assert (found.episodes, found.changed, found.reward.mean) == (0, [], 0)
