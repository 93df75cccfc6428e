"""Advantages against their papers' formulas, written out with plain Python; pairs and punishments into a training set."""

from statistics import fmean, stdev

import numpy as np
import polars as pl
import pytest

from lakehouse.export import training_set
from lakehouse.query import query
from lakehouse.selection.estimators import STEPWISE, Overlong, estimated, step_advantages
from lakehouse.selection.select import NothingTrainable, Selection, estimator_of, rebuilt, select

# Group a of three, one of which is not kept but scored; group b of two; c alone; d nothing kept; one of a not scored.
GROUPS = ["a", "a", "a", "a", "b", "b", "c", "d"]
REWARDS = [1.0, 0.0, 0.25, None, 0.0, 3.0, 1.0, 50.0]
KEEP = [True, True, False, False, True, True, True, False]
A, B, C = [1.0, 0.0, 0.25], [0.0, 3.0], [1.0]


def episodes(rewards=REWARDS, keep=KEEP, groups=GROUPS, outcomes=None):
    return pl.DataFrame(
        {
            "group_id": groups,
            "shaped": rewards,
            "outcome": outcomes or rewards,
            "keep": keep,
            "reason": [None if kept else "stale" for kept in keep],
        },
        schema_overrides={"reason": pl.String, "shaped": pl.Float64, "outcome": pl.Float64},
    ).with_row_index("position")


def normalised(group):
    return [(r - fmean(group)) / (stdev(group) + 1e-4) for r in group]


def leave_one_out(group):
    return [r - fmean(group[:i] + group[i + 1 :]) for i, r in enumerate(group)]


def off_mean(group):
    return [r - fmean(group) for r in group]


EXPECTED = {
    "grpo": [*normalised(A), *normalised(B)],
    "dr_grpo": [*off_mean(A), *off_mean(B)],
    "rloo": [*leave_one_out(A), *leave_one_out(B)],
    "reinforce_pp": normalised([*A, *B, *C])[:5],
    "reinforce_pp_baseline": [
        v / (stdev([*off_mean(A), *off_mean(B), 0.0]) + 1e-4) for v in [*off_mean(A), *off_mean(B)]
    ],
    "reward": [*A, *B],
    "none": [1.0] * 5,
}


@pytest.mark.parametrize("estimator", EXPECTED)
def test_an_advantage_is_its_papers_formula_over_the_scored_episodes(estimator):
    told = estimated(episodes(), estimator)
    assert told["advantage"].gather([0, 1, 2, 4, 5]).to_list() == pytest.approx(EXPECTED[estimator], rel=1e-12)
    alone = estimator in ("grpo", "dr_grpo", "rloo", "reinforce_pp_baseline")
    assert told["reason"].to_list()[6] == ("singleton_group" if alone else None)
    assert told["keep"].to_list() == [True, True, False, False, True, True, not alone, False]


@pytest.mark.parametrize("estimator", sorted(STEPWISE))
def test_where_every_call_has_its_episodes_reward_steps_are_outcomes(estimator):
    """However many calls an episode has: the mean counts episodes. A row more would shift it."""
    rewards, groups, calls = [*A, *B], [0, 0, 0, 1, 1], [5, 1, 2, 1, 7]
    whole = estimated(episodes(rewards, [True] * 5, [str(g) for g in groups]), estimator)["advantage"].to_numpy()
    episode = np.repeat(np.arange(5), calls)
    found = step_advantages(episode, np.repeat(groups, calls), np.repeat(rewards, calls), estimator)
    np.testing.assert_allclose(found, np.repeat(whole, calls), rtol=1e-12)


def test_dr_grpo_does_not_know_the_deviation():
    """Twice the spread, twice the advantage; GRPO sees no difference."""
    once, twice = (episodes([k * r for r in (1.0, 0.0)], [True, True], ["a", "a"]) for k in (1, 2))
    assert estimated(twice, "dr_grpo")["advantage"].to_list() == [1.0, -1.0]
    assert estimated(once, "dr_grpo")["advantage"].to_list() == [0.5, -0.5]
    assert estimated(twice, "grpo")["advantage"][0] == pytest.approx(estimated(once, "grpo")["advantage"][0], rel=1e-3)


def test_pairs_are_the_best_and_the_worst_by_outcome_then_by_shape():
    told = estimated(
        episodes(
            [0.5, 1.0, 0.9, 0.2, 0.1, 5.0, 7.0, 1.0],
            [True, True, True, True, False, True, True, True],
            ["a", "a", "a", "a", "a", "b", "b", "c"],
            outcomes=[1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0],
        ),
        "pairs",
    )
    assert told["advantage"].to_list()[:4] == [None, 1.0, None, -1.0]  # not 0.1: it was left out before
    assert told["reason"].to_list() == [
        *("not_in_pair", None, "not_in_pair", None, "stale"),
        *("zero_variance_group", "zero_variance_group", "singleton_group"),
    ]
    assert told.columns == [*episodes().columns, "advantage"]


def test_long_episodes_lose_of_their_reward_and_no_more_than_the_penalty():
    lengths = pl.DataFrame({"n_completion_tokens": [0, 80, 90, 100, 500]})
    lost = lengths.select(Overlong(limit=100, buffer=20, penalty=2).punishment()).to_series()
    assert lost.to_list() == [0, 0, -1, -2, -2]
    with pytest.raises(ValueError, match="the buffer of 21 tokens is longer than the limit of 20"):
        Overlong(limit=20, buffer=21)


PAIRS = Selection(
    objective="dpo", rubrics=["search@2"], filter="grpo", policy_version=1, advantage="pairs", max_tokens_per_row=20
)


def test_a_pair_of_whole_answers_is_pinned_and_rebuilt(landed, make):
    lake = landed(make.group([True, False, True, False]))
    made = select(lake, PAIRS)
    assert (made.rows, made.reasons, made.ledger.dropped) == (2, {"not_in_pair": 2}, {"not_in_pair": 4})
    assert query("select advantage from training_rows order by row_index", lake)["advantage"].to_list() == [1.0, -1.0]
    record = training_set(lake, made.training_set_id)
    assert estimator_of(record) == "pairs"
    assert rebuilt(lake, record) == record.digest


def test_a_pair_with_a_row_that_is_too_long_is_no_pair(landed, make):
    long = [make.call([1, 2, 3], list(range(4, 40)))]
    lake = landed(make.batch(sample=0, calls=long) + make.batch(sample=1, match=False))
    with pytest.raises(NothingTrainable, match="1 partner_too_long, 1 too_long"):
        select(lake, PAIRS)


def test_an_overlong_answer_is_worth_less_than_a_short_one_of_the_same_outcome(landed, make):
    """The short one was cut off: without an end of text it is not taken for a long one."""
    long = [make.call([1, 2, 3], list(range(4, 14)))]
    cut = [make.call([1, 2, 3], [4, 5], finish_reason="length")]
    lake = landed(
        make.batch(sample=0, calls=long) + make.batch(sample=1, calls=cut) + make.batch(sample=2, match=False)
    )
    made = Selection(
        objective="dapo", rubrics=["search@2"], filter="grpo", policy_version=1, overlong=Overlong(limit=10, buffer=4)
    )
    select(lake, made)
    rows = query("select reward, advantage from training_rows order by row_index", lake)
    shaped = [rows["reward"][0] - 1, rows["reward"][1], rows["reward"][2]]  # the reward itself stays as it was judged
    assert rows["advantage"].to_list() == pytest.approx(normalised(shaped))


@pytest.mark.parametrize("estimator", ["grpo", "reinforce_pp"])
def test_an_episode_of_many_rows_counts_once(landed, make, estimator):
    """Three conversations of the first episode are three rows, and no more than one episode in mean and deviation."""
    forest = [make.call([10 * i], [10 * i + 1], index=i, segment=i) for i in range(3)]
    lake = landed(
        make.batch(sample=0, calls=forest) + make.batch(sample=1, match=False) + make.batch(sample=2, match=False)
    )
    made = PAIRS.model_copy(update={"objective": "any", "advantage": estimator})
    assert select(lake, made).rows == 5
    rows = query("select reward, advantage from training_rows order by row_index", lake)
    first, second, third = normalised(rows["reward"].gather([0, 3, 4]).to_list())
    assert rows["advantage"].to_list() == pytest.approx([first] * 3 + [second, third])


def test_what_makes_no_sense_is_refused():
    for wrong, why in (
        ({"advantage": "reward", "credit": "steps"}, "reward is of whole episodes"),
        ({"advantage": "pairs", "credit": "steps"}, "pairs is of whole episodes"),
        ({"advantage": "none", "overlong": {"limit": 9, "buffer": 3}}, "advantage=none has none"),
        ({"advantage": "median"}, "Input should be 'none', 'grpo'"),
        ({"objective": "GRPO!"}, "String should match"),
    ):
        with pytest.raises(ValueError, match=why):
            Selection.model_validate(PAIRS.model_dump() | wrong)
