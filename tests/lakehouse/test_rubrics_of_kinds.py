"""The rubrics of kinds that others grade: what their evidence becomes."""

import pytest

from lakehouse.label import current, label
from lakehouse.query import query


def judged(lake, make, kind, name, value, **changes):
    """The judgement of one episode of a kind with this evidence."""
    batch = make.batch(match=None, problem_kind=kind, **changes)
    if value is not None:
        batch.evidence = [make.evidence(name, value, episode_id=batch.episodes[0].episode_id, attempt_id="a0")]
    batch.land(lake)
    label(lake, current(kind))
    [row] = query("select status, outcome, reward from latest_rewards", lake).rows()
    return row


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"reward": 1.0, "timed_out": False}, ("scored", 1.0, 1.0)),
        ({"reward": 0.4, "timed_out": False}, ("scored", 0.0, 0.4)),
        ({"reward": None, "timed_out": True}, ("scored", 0.0, 0.0)),
        ({"reward": None, "timed_out": False}, ("scored", 0.0, 0.0)),
        (None, ("no_evidence", None, None)),
    ],
    ids=["full", "part", "the tests did not end", "the tests said nothing", "no evidence"],
)
def test_terminal_given_a_verdict_expect_reward(lake, make, value, expected):
    assert judged(lake, make, "terminal", "verifier", value) == expected


def given(*rewards):
    return {
        "rows": [
            {"call": call, "reward": reward, "labeller": "l", "reason": "", "given_at": ""} for call, reward in rewards
        ]
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (given((None, 1.0)), ("scored", 1.0, 1.0)),
        (given((None, 0.0)), ("scored", 0.0, 0.0)),
        (given((None, 0.0), (None, 1.0)), ("scored", 1.0, 1.0)),
        (given((None, 1.0), (None, -1.0)), ("scored", 0.0, -1.0)),
        (given(("a", 0.5), ("b", 0.25), ("a", 1.0)), ("scored", 1.0, 1.25)),
        (given(("a", 0.5), (None, 0.25)), ("scored", 0.0, 0.75)),
        (given(), ("no_evidence", None, None)),
        (None, ("no_evidence", None, None)),
    ],
)
def test_external_takes_the_newest_for_the_whole_and_of_each_call(lake, make, value, expected):
    assert judged(lake, make, "external", "rewards", value) == expected


@pytest.mark.parametrize("status", ["infra_error", "agent_error", "timeout", "cancelled"])
def test_a_reward_of_an_episode_that_says_nothing_of_the_policy_is_none(lake, make, status):
    assert judged(lake, make, "external", "rewards", given((None, 0.0)), status=status) == ("not_trainable", None, None)
