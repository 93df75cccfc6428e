import pytest

from lakehouse.label import label
from lakehouse.reviews import review
from lakehouse.trajectory import UnknownEpisode, trajectory
from lakehouse.write import Writer


def test_a_trajectory_tells_turns_tools_rewards_and_versions(lake, make):
    calls = [
        make.call([1], [2, 3], index=0, weight_versions=[4, 5]),
        make.call([1, 2, 3], [4], index=1, parent_call_id="c0"),
    ]
    batch = make.batch(calls=calls)
    Writer(lake).append("problems", [make.problem()])
    batch.land(lake)
    label(lake, "search@2")
    told = trajectory(lake, batch.episodes[0].episode_id)
    assert told.episode == batch.episodes[0]
    assert told.problem == make.problem()
    assert [turn.call for turn in told.turns] == batch.calls
    assert [turn.versions for turn in told.turns] == [[4, 5], [1]]
    assert [[action.call_id for action in turn.actions] for turn in told.turns] == [["c0"], ["c1"]]
    assert told.evidence == batch.evidence
    assert [(reward.rubric, reward.reward) for reward in told.rewards] == [("search", 1.0)]
    assert told.stray_actions == []


def test_each_reviewer_s_newest_verdict_is_part_of_it(lake, make):
    batch = make.batch()
    batch.land(lake)
    one = batch.episodes[0].episode_id
    review(lake, one, 1.0, reviewer="ann")
    review(lake, one, None, reviewer="bob", comment="copied")
    review(lake, one, 0.0, reviewer="ann")
    told = trajectory(lake, one).reviews
    assert [(verdict.reviewer, verdict.outcome, verdict.comment) for verdict in told] == [
        ("bob", None, "copied"),
        ("ann", 0.0, None),
    ]


def test_an_unknown_episode_is_refused_with_a_remedy(lake):
    with pytest.raises(UnknownEpisode, match="no episode 'ep-x' has landed"):
        trajectory(lake, "ep-x")
