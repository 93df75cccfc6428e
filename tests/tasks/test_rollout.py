import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.records import Dispatch, episode_id, group_id, now
from tasks.rollout import Draw, shards


def intents(problems, samples):
    return [
        Dispatch(
            episode_id=episode_id("run", f"p{problem}", sample),
            run_id="run",
            group_id=group_id("run", f"p{problem}"),
            problem_id=f"p{problem}",
            sample_index=sample,
            agent="search",
            mode="policy",
            purpose="train",
            created_at=now(),
        )
        for problem in range(problems)
        for sample in range(samples)
    ]


@given(st.integers(0, 6), st.integers(1, 5), st.integers(1, 12))
def test_shards_hold_every_episode_once_and_in_order(problems, samples, size):
    wanted = intents(problems, samples)
    made = shards(wanted, size)
    assert [one for shard in made for one in shard] == wanted
    assert all(1 <= len(shard) <= size for shard in made)


@pytest.mark.parametrize(("agent", "mode"), [("policy", "policy"), ("null", "policy"), ("expert", "demonstration")])
def test_what_the_expert_does_is_a_demonstration(agent, mode):
    assert Draw("run", {"search": 1}, "train", 1, agent, "train", 0, 1.0).mode == mode
