"""Given episodes, expect keep or a reason, per filter."""

import pytest

from lakehouse import connect
from lakehouse.label import label
from lakehouse.write import Writer


def reasons(lake, name, *, policy_version=1, max_staleness=1):
    with connect(lake) as connection:
        connection.execute(
            f"set variable policy_version = {policy_version}; set variable max_staleness = {max_staleness}"
        )
        rows = connection.sql(f"select sample_index, keep, reason from filters.{name} order by sample_index").fetchall()
    assert all(keep == (reason is None) for _, keep, reason in rows)
    return [reason for _, _, reason in rows]


@pytest.fixture
def land(lake, make):
    def land(batch, *, labelled=True, **problem):
        Writer(lake).append("problems", [make.problem(**problem)])
        batch.land(lake)
        if labelled:
            label(lake, "search@2")
        return lake

    return land


def test_a_group_with_both_outcomes_is_kept(land, make):
    assert reasons(land(make.group([True, False])), "grpo") == [None, None]


@pytest.mark.parametrize("outcome", [True, False])
def test_a_group_of_one_outcome_has_no_gradient(land, make, outcome):
    assert reasons(land(make.group([outcome] * 3)), "grpo") == ["zero_variance_group"] * 3


def test_shaped_reward_is_no_variance(land, make):
    batch = make.group([False, False])
    own = {"episode_id": batch.episodes[0].episode_id, "attempt_id": "a0"}
    batch.evidence.append(make.evidence("retrieval", {"hit": True}, **own))
    assert reasons(land(batch), "grpo") == ["zero_variance_group"] * 2


def test_a_group_of_one_scored_episode_is_a_singleton(land, make):
    assert reasons(land(make.group([True, None])), "grpo") == ["singleton_group", "no_evidence"]


def test_a_failure_of_the_infrastructure_is_not_trainable(land, make):
    failed = make.batch(sample=2, match=False, status="infra_error")
    assert reasons(land(make.group([True, False]) + failed), "grpo") == [None, None, "not_trainable"]


def test_an_episode_nobody_judged_is_unlabelled(land, make):
    assert reasons(land(make.group([True, False]), labelled=False), "grpo") == ["unlabelled"] * 2


def test_staleness_counts_from_the_oldest_token(land, make, lake):
    Writer(lake).append("model_versions", [make.version(5, 4), make.version(4, 3)])
    mixed = make.call([1], [2, 3], weight_versions=[3, 5])
    fresh = make.call([1], [2, 3], weight_versions=[4, 4])
    batch = make.batch(sample=0, calls=[mixed]) + make.batch(sample=1, match=False, calls=[fresh])
    assert reasons(land(batch), "grpo", policy_version=5, max_staleness=1) == ["stale", None]


def test_tokens_of_a_version_the_policy_was_not_trained_from_are_kept_out(land, make, lake):
    """Version 3 was rolled back: 4 was trained from 2. Another model's numbers say nothing here."""
    lineage = [make.version(1), make.version(2, 1), make.version(3, 2), make.version(4, 2), make.version(5, 3)]
    Writer(lake).append("model_versions", [*lineage, make.version(4, 3, name="other")])
    sampled = [[2, 2], [3, 3], [4, 2], [4, 3], [2, 5]]
    batch = make.batch(sample=9, match=False, calls=[make.call([1], [2, 3], weight_versions=[4, 4])])
    for sample, versions in enumerate(sampled):
        batch += make.batch(sample=sample, calls=[make.call([1], [2, 3], weight_versions=versions)])
    land(batch)
    stray = "not_an_ancestor"
    assert reasons(lake, "grpo", policy_version=4, max_staleness=2) == [None, stray, None, stray, stray, None]
    assert reasons(lake, "grpo", policy_version=2, max_staleness=2) == [None, *[stray] * 5]


@pytest.mark.parametrize("name", ["grpo", "fresh"])
def test_age_counts_steps_of_training_and_not_the_numbers_of_what_was_rolled_back(land, make, lake, name):
    """Versions 5 to 7 were rolled back: 8 was trained from 4, one step later."""
    rejected = [make.version(5, 4), make.version(6, 5), make.version(7, 6)]
    Writer(lake).append("model_versions", [make.version(3), make.version(4, 3), *rejected, make.version(8, 4)])
    batch = make.batch(sample=0, model_version=8, calls=[make.call([1], [2, 3], weight_versions=[4, 8])])
    for sample, version in enumerate((4, 3, 7), start=1):
        calls = [make.call([1], [2, 3], version=version)]
        batch += make.batch(sample=sample, match=sample == 1, model_version=version, calls=calls)
    land(batch)
    assert reasons(lake, name, policy_version=8, max_staleness=1) == [None, None, "stale", "not_an_ancestor"]
    assert reasons(lake, name, policy_version=8, max_staleness=2) == [None, None, None, "not_an_ancestor"]
    assert reasons(lake, name, policy_version=4, max_staleness=0)[1:] == [None, "stale", "not_an_ancestor"]


def test_a_version_in_the_middle_of_an_episode_counts_as_well(land, make, lake):
    Writer(lake).append("model_versions", [make.version(4, 2), make.version(3, 2)])
    calls = [make.call([i], [2, 3], index=i, version=version) for i, version in enumerate((2, 3, 4))]
    lake = land(make.batch(sample=0, calls=calls))
    assert reasons(lake, "grpo", policy_version=4, max_staleness=2)[0] == "not_an_ancestor"


@pytest.mark.parametrize("name", ["grpo", "sft"])
@pytest.mark.parametrize("changes", [{"split": "eval"}, {"purpose": "eval:sft"}], ids=["split", "purpose"])
def test_evaluation_is_never_trained_on(land, make, name, changes):
    mode = "policy" if name == "grpo" else "demonstration"
    assert reasons(land(make.group([True, False], mode=mode, **changes)), name) == ["eval_split"] * 2


@pytest.mark.parametrize("name", ["grpo", "sft"])
def test_a_licence_that_does_not_allow_training_is_kept_out(land, make, name):
    mode = "policy" if name == "grpo" else "demonstration"
    lake = land(make.group([True, False], mode=mode), allowed_uses=["evaluation"])
    assert reasons(lake, name) == ["licence"] * 2


def test_a_problem_nobody_registered_is_kept_out(land, make):
    assert reasons(land(make.group([True, False], problem_id="stranger")), "grpo") == ["unknown_problem"] * 2


def test_a_problem_that_failed_a_gate_is_kept_out(land, make):
    assert reasons(land(make.group([True, False]), null_failed=False), "grpo") == ["gates_failed"] * 2


def test_an_episode_without_token_ids_is_kept_out(land, make):
    missing = make.call([], [], token_status="missing", token_route="chat", logprobs=None)
    batch = make.batch(sample=0, calls=[missing]) + make.batch(sample=1, calls=[]) + make.batch(sample=2, match=False)
    assert reasons(land(batch), "grpo") == ["tokens_missing", "tokens_missing", None]


def test_grpo_takes_policy_samples_and_sft_solved_demonstrations(land, make):
    batch = make.group([True, False])
    batch += make.batch(sample=2, mode="demonstration") + make.batch(sample=3, match=False, mode="demonstration")
    lake = land(batch)
    assert reasons(lake, "grpo") == [None, None, "not_policy", "not_policy"]
    assert reasons(lake, "sft") == ["not_a_demonstration", "not_a_demonstration", None, "not_solved"]
