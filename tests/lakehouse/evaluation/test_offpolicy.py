"""Off-policy evaluation from the lake: which episodes can be weighed, and that stored log-probs give the estimate."""

import numpy as np
import pytest

from lakehouse.evaluation.logged import Unsuitable, gather, ratios
from lakehouse.evaluation.offpolicy import TooFewEffectiveSamples, evaluate
from lakehouse.records import CallReward, dumps
from lakehouse.write import Writer

MU, PI = np.array([0.75, 0.25]), np.array([0.4, 0.6])  # of saying token 10 or 11; 11 is right


def arms(exams, make, counts, **changes):
    """A two-armed bandit: one call of one token per episode, `counts` of each arm in every problem."""
    for number, (zeros, ones) in enumerate(counts):
        for sample, arm in enumerate([0] * zeros + [1] * ones):
            call = make.call([1, 2], [10 + arm], logprobs=[float(np.log(MU[arm]))], **changes)
            exams.sit(1, f"search/{number}-{sample}", [arm], calls=[call])


def scored(log):
    """The candidate's log-probs of the rows' sampled tokens."""
    told = []
    for ids, mask in zip(log.rows["input_ids"].to_pylist(), log.rows["loss_mask"].to_pylist(), strict=True):
        tokens = [token for token, sampled in zip(ids, mask, strict=True) if sampled]
        told.append(np.log(PI[np.array(tokens) - 10]))
    return told


def estimated(log, **how):
    asked = {"name": "toy", "version": 2, "run_ids": ["old"], "min_effective_samples": 2, "resamples": 1000}
    return evaluate(log, scored(log), **(asked | how))


def test_a_bandits_arms_in_the_share_that_was_sampled_give_the_candidates_success_exactly(exams, make):
    """Pulled as often as they are likely, 0.75 and 0.25, both estimators are exact: the candidate succeeds in 0.6."""
    arms(exams, make, [(6, 2), (3, 1)])
    found = estimated(gather(exams.where, "toy", ["old"]))
    assert found.observed == 0.25
    for method in ("is", "wis"):
        assert found.estimates[method].value == pytest.approx(0.6)
        assert found.estimates[method].difference == pytest.approx(0.35)
    w = np.repeat(PI / MU, [9, 3])
    assert found.mean_weight == pytest.approx(1)
    assert found.effective_samples == pytest.approx(w.sum() ** 2 / (w**2).sum())
    assert found.largest_share == pytest.approx(2.4 / 12)
    assert (found.episodes, found.problems, found.tokens, found.sampled_by) == (12, 12, 12, {"1": 12})
    assert "pdis" not in found.estimates  # nothing was earned but at the end
    assert found.values["offpolicy_success"] == pytest.approx(0.6)


def test_it_is_refused_below_the_minimum_with_the_number(exams, make):
    arms(exams, make, [(3, 1)])
    with pytest.raises(
        TooFewEffectiveSamples, match=r"4 episodes of version 1 are worth 2\.4 of its own, and 32 are"
    ) as refused:
        estimated(gather(exams.where, "toy", ["old"]), min_effective_samples=32)
    assert set(refused.value.estimated.values) == {"effective_samples"}


def test_episodes_that_cannot_be_weighed_are_left_out_by_why(exams, make):
    calls = {
        "a": {},
        "b": {"status": "timeout"},
        "c": {"model_name": "other"},
        "d": {"mode": "demonstration"},
        "e": {"calls": [make.call([1], [2], token_status="missing", logprobs=None, weight_versions=[1])]},
        "f": {"calls": [make.call([1], [2, 3], redacted=[0, 1])]},
        "g": {"calls": [make.call([1], [2], sampling=dumps({"top_p": 0.9}))]},
        "h": {"calls": [make.call([1], [2], sampling=dumps({"top_k": 20}))]},
    }
    for name, changes in calls.items():
        exams.sit(1, f"search/{name}", [1], **changes)
    exams.sit(1, "search/i", ["unscored"])
    log = gather(exams.where, "toy", ["old"])
    assert log.episodes["problem_id"].to_list() == ["search/a"]
    assert log.left_out == {
        "failed": 1, "other_model": 1, "demonstration": 1, "tokens_missing": 1, "tokens_redacted": 1, "other_sampling": 2,
        "unscored": 1,
    }  # fmt: skip


def test_rows_are_calls_and_weights_multiply_over_an_episode(exams, make):
    calls = [
        make.call([1, 2], [10, 11], logprobs=[-0.1, -0.2]),
        make.call([1, 2, 10, 11, 7], [11], index=1, logprobs=[-0.3]),
    ]
    exams.sit(1, "search/a", [1], calls=[*calls, make.call([5], [], index=2, logprobs=[], weight_versions=[])])
    exams.sit(1, "search/b", [0], calls=[])
    log = gather(exams.where, "toy", ["old"])
    assert log.rows["input_ids"].to_pylist() == [[1, 2, 10, 11], [1, 2, 10, 11, 7, 11]]
    assert log.rows["loss_mask"].to_pylist() == [[0, 0, 1, 1], [0, 0, 0, 0, 0, 1]]
    assert log.rows["logprobs"].to_pylist() == [pytest.approx([0, 0, -0.1, -0.2]), pytest.approx([0] * 5 + [-0.3])]
    logged = ratios(log, [np.array([-0.5, -0.5]), np.array([-0.1])])
    assert [one.tolist() for one in logged.steps] == [pytest.approx([-0.7, 0.2]), [0.0]]
    assert logged.logs == pytest.approx([-0.5, 0])
    assert [one.tolist() for one in logged.earned] == [[0, 1], [0]]


def test_what_the_rubric_gave_to_calls_is_earned_by_them(exams, make):
    calls = [make.call([1], [10], logprobs=[-0.1]), make.call([1, 10, 7], [11], index=1, logprobs=[-0.3])]
    exams.sit(1, "search/a", [1], calls=calls)
    exams.sit(1, "search/b", [1], calls=calls)
    episode = exams.played.episodes[0].episode_id
    given = CallReward(episode_id=episode, call_id="c0", rubric="search", rubric_version=1, reward=0.25, reason=None,
                       labelled_at=make.problem().created_at)  # fmt: skip
    Writer(exams.where).append("call_rewards", [given])
    log = gather(exams.where, "toy", ["old"], of="reward")
    assert sorted(ratios(log, scored(log)).earned[0].tolist() + ratios(log, scored(log)).earned[1].tolist()) == [
        0,
        0.25,
        0.75,
        1,
    ]
    found = estimated(log, of="reward", min_effective_samples=1)
    assert found.estimates["pdis"].value != pytest.approx(found.estimates["is"].value)
    assert "pdis" not in estimated(gather(exams.where, "toy", ["old"]), min_effective_samples=1).estimates


@pytest.mark.parametrize(
    ("sampling", "said"),
    [
        ([{"temperature": 1.0}, {"temperature": 0.5}], "mix the temperatures 0.5, 1,"),
        ([{"temperature": 0.0}], "sampled at temperature 0"),
        ([{"top_p": 0.5}], "can be weighed: 1 other_sampling"),
    ],
)
def test_runs_that_cannot_be_weighed_are_refused_in_words(exams, make, sampling, said):
    for number, one in enumerate(sampling):
        exams.sit(1, f"search/{number}", [1], calls=[make.call([1], [2], sampling=dumps(one))])
    with pytest.raises(Unsuitable, match=said):
        gather(exams.where, "toy", ["old"])


def test_the_temperature_of_the_runs_is_told_and_a_run_that_is_not_there_is_named(exams, make):
    exams.sit(1, "search/a", [1], calls=[make.call([1], [2], sampling=dumps({"temperature": 0.7, "top_p": 1.0}))])
    assert gather(exams.where, "toy", ["old"]).temperature == 0.7
    with pytest.raises(Unsuitable, match="no episode of the runs gone of toy can be weighed: there is none"):
        gather(exams.where, "toy", ["gone"])
