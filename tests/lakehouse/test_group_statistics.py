"""How an episode stands in its group: NULL is out of every mean, and a group without a gradient says why."""

import math

from lakehouse.label import label
from lakehouse.query import query

SQL = """
    select group_episodes, group_scored, group_mean, advantage, reason
    from group_statistics join episodes using (episode_id) where episodes.problem_id = '{}' order by sample_index
"""


def test_what_is_not_scored_shifts_no_mean_and_groups_say_why_they_give_no_gradient(lake, make):
    batch = make.group([True, False, False, None], "mixed") + make.batch("mixed", 4, status="infra_error")
    batch += make.group([True, True], "same") + make.group([False], "alone") + make.group([True, None], "rest")
    batch.land(lake)
    label(lake, "search@2")
    found = {name: query(SQL.format(name), lake).rows() for name in ("mixed", "same", "alone", "rest")}
    std = math.sqrt(1 / 3)
    scored = [(5, 3, 1 / 3, (reward - 1 / 3) / (std + 1e-4), None) for reward in (1, 0, 0)]
    for row, expected in zip(found["mixed"], scored, strict=False):
        assert row[4] is None and all(math.isclose(a, b) for a, b in zip(row[:4], expected[:4], strict=True))
    assert [row[3:] for row in found["mixed"][3:]] == [(None, "no_evidence"), (None, "not_trainable")]
    assert found["same"] == [(2, 2, 1.0, 0.0, "zero_variance_group")] * 2
    assert found["alone"] == [(1, 1, 0.0, None, "singleton_group")]
    assert [row[4] for row in found["rest"]] == ["singleton_group", "no_evidence"]
