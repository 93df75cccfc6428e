"""What sessions in production earned, by version: which count, and in which order."""

from datetime import timedelta

from lakehouse.evaluation.production import fates, rewards
from lakehouse.records import Reward
from lakehouse.write import Writer


def played(make, sample, version, *, after_s=0, **changes):
    """A session of an application outside, `after_s` seconds after the others."""
    at = make.problem().created_at + timedelta(seconds=after_s)
    how = {
        "calls": [],
        "model_version": version,
        "purpose": "external",
        "problem_kind": "external",
        "run": "external-20260101",
    }
    return make.batch("shop", sample, match=None, **(how | {"started_at": at, "ended_at": at} | changes))


def test_the_judgement_that_holds_counts_for_sessions_in_production_since_then(lake, make):
    began = make.problem().created_at
    batches = [
        played(make, 0, 4, after_s=30),
        played(make, 1, 4, after_s=20),
        played(make, 2, 5, after_s=25),
        played(make, 3, 5, after_s=1),  # before the canary
        played(make, 4, 6, after_s=30),  # of neither version
        played(make, 5, 5, after_s=30, purpose="eval:t"),  # no production
        played(make, 6, 5, after_s=40, status="infra_error", error="the engine was gone"),
    ]
    whole = batches[0]
    for one in batches[1:]:
        whole = whole + one
    whole.land(lake)
    given = [
        (episode.episode_id, value)
        for episode, value in zip(whole.episodes[:6], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], strict=True)
    ]
    row = {"rubric": "external", "status": "scored", "components": "{}", "outcome": 0.0}
    Writer(lake).append(
        "rewards",
        [Reward(episode_id=name, reward=value, rubric_version=1, labelled_at=began, **row) for name, value in given]
        + [Reward(episode_id=given[0][0], reward=0.9, rubric_version=2, labelled_at=began, **row)],
    )
    name, since = whole.episodes[0].model_name, began + timedelta(seconds=10)
    assert rewards(lake, name, [4, 5], since) == {4: [0.2, 0.9], 5: [0.3]}  # in the order in which they ended
    assert rewards(lake, "another", [4, 5], since) == {4: [], 5: []}
    assert fates(lake, name, [4, 5], since) == {4: {"ok": 2}, 5: {"infra_error": 1, "ok": 1}}
