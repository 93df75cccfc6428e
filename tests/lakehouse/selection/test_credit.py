"""Credit flows along lines of conversation: by hand, against the gateway's own, and into training rows."""

import math
import random
from datetime import UTC, datetime

import numpy as np
import pytest

from lakehouse.label import label
from lakehouse.query import query
from lakehouse.records import CallReward, Reward
from lakehouse.selection.credit import Tree, returns
from lakehouse.selection.estimators import step_advantages
from lakehouse.selection.select import Selection, select
from lakehouse.write import Writer
from sandboxes.gateway.sessions.lines import Lines
from sandboxes.gateway.sessions.recorded import Answer, Intent, Recorded

AT = datetime(2026, 1, 1, tzinfo=UTC)
NONE = float("nan")
STEPS = Selection(objective="grpo", rubrics=["search@2", "judge@1"], filter="grpo", policy_version=1, credit="steps")


def tree(*calls):
    """(episode, parent, again, prompt, reward) per call."""
    columns = zip(*calls, strict=True)
    kinds = (np.int64, np.int64, bool, np.int64, np.float64)
    return Tree(*(np.array(values, kind) for values, kind in zip(columns, kinds, strict=True)))


# Episode 0: a main line 0-1-2, a branch 3 from 0, a sub-agent 4-5. Episode 1: a prompt 6 that was tried again, 7-8.
SMALL = tree(
    (0, -1, False, 1, NONE),
    (0, 0, False, 0, 0.5),
    (0, 1, False, 0, NONE),
    (0, 0, False, 0, 1.0),
    (0, -1, False, 2, NONE),
    (0, 4, False, 0, 0.2),
    (1, -1, False, 9, NONE),
    (1, -1, True, 9, NONE),
    (1, 7, False, 0, NONE),
)


def test_a_small_tree_by_hand():
    """The branch and the sub-agent keep what is theirs; the try that nobody went on from has no credit at all."""
    found = returns(SMALL, np.array([2.0, 0.0]), 0.5)
    assert found[:6].tolist() == [0.75, 1.5, 2.0, 1.0, 0.1, 0.2]
    assert np.isnan(found[6])
    assert found[7:].tolist() == [0.0, 0.0]


def test_every_episode_weighs_the_same_in_the_baseline_however_many_its_calls():
    found = step_advantages(SMALL.episode, np.zeros(9, np.int64), returns(SMALL, np.array([2.0, 0.0]), 0.5))
    first = [0.75, 1.5, 2.0, 1.0, 0.1, 0.2]
    mean = (sum(first) / 6 + 0) / 2
    std = math.sqrt(sum((r - mean) ** 2 for r in first) / 6 + (0 - mean) ** 2)
    assert found[:6] == pytest.approx([(r - mean) / (std + 1e-4) for r in first])
    assert np.isnan(found[6])
    assert found[7:] == pytest.approx([-mean / (std + 1e-4)] * 2)


@pytest.mark.parametrize("seed", range(20))
def test_credit_is_the_gateways(seed):
    """Random forests of calls: the same numbers as `/export_trajectories`, where no reward at all counts as 0 there."""
    dice = random.Random(seed)
    calls, rewards, rows = [], {}, []
    for index in range(dice.randint(1, 12)):
        parent = dice.choice([None, *range(index)]) if index else None
        again = index > 0 and parent is None and dice.random() < 0.5
        prompt = [1] if again or index == 0 else [1, index]
        reason = "retry" if again else "root" if index == 0 else None if parent is not None else "subagent"
        calls.append(recorded(index, parent, prompt, reason))
        if dice.random() < 0.3:
            rewards[f"c{index}"] = dice.random()
        rows.append((0, -1 if parent is None else parent, again, prompt[-1], rewards.get(f"c{index}", NONE)))
    episode, discount = dice.random(), dice.choice([1.0, 0.9])
    theirs = Lines(calls).credits(rewards, episode, discount)
    ours = np.nan_to_num(returns(tree(*rows), np.array([episode]), discount))
    assert ours.tolist() == pytest.approx([theirs[f"c{index}"] for index in range(len(calls))])


def recorded(index, parent, prompt, reason):
    intent = Intent(
        call_id=f"c{index}",
        call_index=index,
        parent_call_id=None if parent is None else f"c{parent}",
        segment=0,
        fork_reason=reason,
        body_digest="",
        idempotency_key=None,
        messages=[{"role": "user", "content": f"{index}"}],
        tools=[],
        template_kwargs={},
        sampling={},
        prompt_token_ids=prompt,
        token_route="generate",
        template_digest="",
        engine_version="",
        started_at=AT,
    )
    return Recorded(intent, Answer(status="ok", message={"role": "assistant", "content": f"said {index}"}))


def rows(lake):
    return query("select * from training_rows order by row_index", lake).to_dicts()


def judged(episode, call, reward, *, rubric="judge", at=AT):
    return CallReward(
        episode_id=episode, call_id=call, rubric=rubric, rubric_version=1, reward=reward, reason=None, labelled_at=at
    )


@pytest.fixture
def landed(lake, make):
    """A solved episode of a chain c0-c1 with a branch c2 and a sub-agent c3, and one that failed in one call."""
    calls = [
        make.call([1], [2], index=0),
        make.call([1, 2, 9], [3, 4], index=1, parent_call_id="c0"),
        make.call([1, 2, 8], [5], index=2, parent_call_id="c0"),
        make.call([7], [6], index=3, fork_reason="subagent"),
    ]
    Writer(lake).append("problems", [make.problem()])
    batch = make.batch(sample=0, calls=calls) + make.batch(sample=1, match=False)
    batch.land(lake)
    label(lake, "search@2")
    return lake, batch.episodes[0].episode_id


def test_per_token_advantages_of_a_small_tree_by_hand(landed):
    """With discount 1/2: c1 has the outcome, 1, c0 half of it and its own 0.25. The branch's own 0.4 stays there."""
    lake, episode = landed
    old = judged(episode, "c0", 99.0, at=datetime(2025, 1, 1, tzinfo=UTC))
    Writer(lake).append("call_rewards", [old, judged(episode, "c0", 0.25), judged(episode, "c2", 0.4)])
    made = select(lake, STEPS.model_copy(update={"discount": 0.5}))
    credit = {"c0": 0.75, "c1": 1.0, "c2": 0.4}
    mean = (sum(credit.values()) / 3 + 0.0) / 2
    std = math.sqrt(sum((r - mean) ** 2 for r in credit.values()) / 3 + mean**2)
    c0, c1, c2, failed = ((r - mean) / (std + 1e-4) for r in (*credit.values(), 0.0))
    first, second, third = rows(lake)
    assert first["input_ids"] == [1, 2, 9, 3, 4]
    assert first["advantages"] == pytest.approx([0, c0, 0, c1, c1])
    assert first["advantage"] == pytest.approx((c0 + 2 * c1) / 3)
    assert second["advantages"] == pytest.approx([0, 0, 0, c2])  # c0 is trained once, in the first row
    assert third["advantages"] == pytest.approx([0, 0, 0, failed, failed])
    assert made.ledger.masked == {"no_credit": 1}  # nothing was ever said of the sub-agent
    assert made.ledger.gap == 0


def test_a_rubric_judges_calls_in_its_components(landed):
    lake, episode = landed
    told = Reward(
        episode_id=episode, rubric="judge", rubric_version=1, outcome=0.0, reward=0.0, status="scored",
        components='{"calls": {"c2": 0.4, "c3": -1}}', labelled_at=AT,
    )  # fmt: skip
    Writer(lake).append("rewards", [told])
    assert select(lake, STEPS).ledger.masked == {}
    credit = {row["episode_id"]: row["reward"] for row in rows(lake)}
    assert credit[episode] == 1.0  # the rubric named first judges the episode
    held = query("select call_id, reward from latest_call_rewards order by call_id", lake).rows()
    assert held == [("c2", 0.4), ("c3", -1.0)]


def test_what_the_episodes_own_rubric_gave_its_calls_is_part_of_what_it_gave_the_episode(landed):
    """Of the outcome, 1, the first call earned 0.7: the last call of the main line gets what is left."""
    lake, episode = landed
    Writer(lake).append(
        "call_rewards",
        [judged(episode, "c0", 0.7, rubric="search").model_copy(update={"rubric_version": 2})],
    )
    select(lake, STEPS)
    mean = ((1.0 + 0.3) / 2 + 0) / 2
    std = math.sqrt(((1.0 - mean) ** 2 + (0.3 - mean) ** 2) / 2 + mean**2)
    (row, *_) = rows(lake)
    assert row["advantages"] == pytest.approx([0, (1 - mean) / std, 0, *[(0.3 - mean) / std] * 2], rel=1e-3)


def test_one_line_without_rewards_of_its_calls_has_the_advantage_of_the_outcome(lake, make):
    chain = [make.call([1], [2], index=0), make.call([1, 2, 9], [3, 4], index=1, parent_call_id="c0")]
    Writer(lake).append("problems", [make.problem()])
    (make.batch(sample=9, calls=chain) + make.group([True, False, False, None])).land(lake)
    label(lake, "search@2")
    select(lake, STEPS)
    steps = rows(lake)
    select(lake, STEPS.model_copy(update={"credit": "outcome"}))
    outcome = query("from training_rows where advantages is null order by row_index", lake).to_dicts()
    assert len(steps) == len(outcome) == 4
    for one, other in zip(steps, outcome, strict=True):
        assert one["advantages"] == pytest.approx([other["advantage"] * mask for mask in one["loss_mask"]])


def test_credit_follows_a_rewritten_history(lake, make):
    """After a compaction no token is shared: the gateway says which call the new line takes up."""
    calls = [
        make.call([1], [2], index=0),
        make.call([5], [6], index=1, fork_reason="compaction", continues_call_id="c0"),
    ]
    Writer(lake).append("problems", [make.problem()])
    (make.batch(sample=0, calls=calls) + make.batch(sample=1, match=False)).land(lake)
    label(lake, "search@2")
    made = select(lake, STEPS)
    assert made.ledger.masked == {}
    assert [row["advantage"] > 0 for row in rows(lake)] == [True, True, False]


def test_a_discount_without_steps_and_steps_of_demonstrations_are_refused():
    with pytest.raises(ValueError, match="discount is of credit=steps"):
        Selection.model_validate(STEPS.model_dump() | {"credit": "outcome", "discount": 0.9})
    with pytest.raises(ValueError, match=r"credit=steps is for an advantage of .*: none is of whole episodes"):
        Selection.model_validate(STEPS.model_dump() | {"objective": "sft", "advantage": "none"})
