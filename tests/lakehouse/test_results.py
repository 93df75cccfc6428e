"""How well a run did."""

from lakehouse.label import label
from lakehouse.records import Reward, now
from lakehouse.results import Success, success
from lakehouse.write import Writer


def test_an_episode_counts_once_by_the_newest_version_of_its_rubric(lake, make):
    batch = make.batch(sample=0, match=True) + make.batch(sample=1, match=False) + make.batch(sample=2, match=None)
    batch.land(lake)
    label(lake, "search@2")
    assert success(lake, "r") == [Success(problem_kind="search", n=2, solved=1, unscored=1, reward=0.5)]
    stricter = Reward(
        episode_id=batch.episodes[0].episode_id,
        rubric="search",
        rubric_version=3,
        outcome=0.0,
        reward=0.0,
        status="scored",
        components="{}",
        labelled_at=now(),
    )
    Writer(lake).append("rewards", [stricter])
    assert success(lake, "r") == [Success(problem_kind="search", n=2, solved=0, unscored=1, reward=0.0)]
