"""What is measured of two exams in the lake, and what is decided on it."""

import json

import pytest

from lakehouse import connect
from lakehouse.evaluation.decide import decide, decisions, write_down
from lakehouse.evaluation.measure import measure
from lakehouse.evaluation.metrics import METRICS, TOTAL
from lakehouse.records import Deployment, TrainingSet, dumps
from lakehouse.write import Writer

WORSE = ("success_difference_high", ">=", 0.0)


def measured(exams, **how):
    return measure(exams.where, "toy", 2, run="new", against=(1, "old"), resamples=2000, **how)


def decided(policy, exams, champion=1, **how):
    return decide(policy, measured(exams, **how), name="toy", candidate=2, champion=champion)


def test_pairs_are_episodes_of_one_problem_and_sample_scored_on_both_sides(exams):
    exams.sit(1, "search/a", [1, 0, None])
    exams.sit(2, "search/a", [0, None, 1])  # one pair: the others lost a side
    exams.sit(1, "search/b", [0, 0])
    exams.sit(2, "search/b", [1, 1])
    exams.sit(2, "search/c", [1])  # the champion was not asked
    total = measured(exams).values[TOTAL]
    assert (total["pairs"], total["problems"]) == (3, 2)
    assert total["success_difference"] == pytest.approx((-1 + 2) / 3)
    assert total["paired"] == pytest.approx(3 / 6)
    assert total["success"] == pytest.approx(4 / 5)


def test_an_infrastructure_failure_is_never_a_loss_and_is_counted(exams):
    for problem in "abcdef":
        exams.sit(1, f"search/{problem}", [1, 1])
        exams.sit(2, f"search/{problem}", [1, None])
    found = measured(exams)
    assert found.values[TOTAL]["success_difference"] == 0
    assert found.values[TOTAL]["failed"] == 0.5
    assert found.fates == {"candidate": {"failed": 6, "scored": 6}, "champion": {"scored": 12}}


def test_each_kind_has_its_own_difference(exams):
    for number in range(5):
        exams.sit(1, f"search/{number}", [0])
        exams.sit(2, f"search/{number}", [1])
        exams.sit(1, f"swe/{number}", [1], kind="swe")
        exams.sit(2, f"swe/{number}", [0], kind="swe")
    values = measured(exams).values
    assert list(values) == [TOTAL, "search", "swe"]
    assert [values[scope]["success_difference"] for scope in values] == [0, 1, -1]
    assert values["swe"]["success_difference_high"] < 0 < values["search"]["success_difference_low"]


def test_what_never_landed_is_missing_and_other_weights_are_no_evidence(exams, make):
    exams.sit(1, "search/a", [1, 1, 1])
    exams.sit(2, "search/a", [1, 1], planned=3)
    exams.sit(2, "search/b", [1], calls=[make.call([1], [2, 3], weight_versions=[2, 1])])
    found = measured(exams)
    assert found.fates["candidate"] == {"missing": 1, "mixed": 1, "scored": 2}
    assert found.values[TOTAL]["pairs"] == 2
    assert found.values[TOTAL]["mixed"] == found.values[TOTAL]["failed"] == 0.25


def test_what_another_version_played_is_no_evidence_whichever_run_it_is_in(exams, make):
    """Somebody moved the alias before the run began: all of its tokens are of version 3."""
    exams.sit(1, "search/a", [1, 1])
    exams.sit(2, "search/a", [1])
    exams.sit(2, "search/b", [0], model_version=3, calls=[make.call([1], [2, 3], version=3)])
    found = measured(exams)
    assert found.fates["candidate"] == {"mixed": 1, "scored": 1}
    assert (found.values[TOTAL]["pairs"], found.values[TOTAL]["success"]) == (1, 1)


def test_an_episode_that_should_have_a_reward_and_has_none_is_unscored(exams):
    exams.sit(1, "search/a", [1])
    exams.sit(2, "search/a", ["unscored"])
    found = measured(exams)
    assert found.values[TOTAL]["unscored"] == 1
    assert found.values[TOTAL]["pairs"] == 0
    assert "success_difference" not in found.values[TOTAL]


def test_another_edition_of_a_problem_is_no_pair(exams):
    exams.sit(1, "search/a", [1], problem_edition="e1")
    exams.sit(2, "search/a", [0], problem_edition="e2")
    assert measured(exams).values[TOTAL]["pairs"] == 0


def test_tokens_truncation_and_reward_are_compared(exams, make):
    for number in range(4):
        exams.sit(1, f"search/{number}", [0.5])
        long = {"calls": [make.call([1], [4] * 6, version=2)], "status": "truncated" if number == 0 else "ok"}
        exams.sit(2, f"search/{number}", [0.25], **long)
    total = measured(exams).values[TOTAL]
    assert (total["tokens"], total["tokens_ratio"]) == (6, 3)
    assert total["truncated"] == total["truncated_difference"] == 0.25
    assert (total["reward_difference"], total["success_difference"]) == (-0.25, 0)


def test_the_version_is_measured_by_its_ledger_its_proof_and_its_ancestry(exams, make):
    writer = Writer(exams.where)
    ledger = {"sampled": 20, "trained": 10, "masked": {"call_status": 2}, "dropped": {"stale": 5}}
    made = TrainingSet(
        training_set_id="ts", objective="grpo", rubrics=["search@1"], filter="grpo", table_versions="{}", policy_version=1,
        n_rows=1, n_episodes=1, n_trained_tokens=10, ledger=dumps(ledger), digest="d", created_at=make.problem().created_at,
    )  # fmt: skip
    writer.append("training_sets", [made])
    writer.append("model_versions", [make.version(2, 1).model_copy(update={"training_set_id": "ts"})])
    for number, accepted in enumerate([True, False, True]):
        proof = dumps({"mean_difference": number * 1e-3, "max_difference": number * 1e-2})
        row = Deployment(deployment_id=f"d{number}", name="toy", version=2, engine_url="e", proof=proof, accepted=accepted,
                         reason="", deployed_at=make.problem().created_at.replace(hour=number))  # fmt: skip
        writer.append("deployments", [row])
    total = measured(exams, facts={"agreement": 0.001}).values[TOTAL]
    assert total["ledger_gap"] == 3 + 10  # what the ledger does not say, and the rows that are not there
    assert (total["proven"], total["proof_mean"], total["proof_max"]) == (1, 2e-3, 2e-2)
    assert (total["tainted"], total["agreement"]) == (0, 0.001)


@pytest.mark.parametrize(
    ("rows", "proven"),
    [
        ([("own", True), ("broken", False)], 1),  # as a deployment writes them, the engine that decides first
        ([("broken", False), ("own", True)], 1),
        ([("own", True), ("own", False)], 0),
        ([("own", False)], 0),
        ([("broken", False), ("broken", True), ("own", False)], 1),
    ],
)
def test_a_version_is_proven_where_an_engine_serves_it_at_last_whatever_is_wrong_with_another(
    exams, make, rows, proven
):
    for number, (engine, accepted) in enumerate(rows):
        proof = dumps({"mean_difference": 1e-6}) if accepted else "{}"
        row = Deployment(deployment_id=f"d{number}", name="toy", version=2, engine_url=engine, proof=proof, accepted=accepted,
                         reason="", deployed_at=make.problem().created_at.replace(hour=number))  # fmt: skip
        Writer(exams.where).append("deployments", [row])
    total = measured(exams).values[TOTAL]
    assert (total["proven"], total.get("proof_mean")) == (proven, 1e-6 if proven else None)


def test_only_what_the_metrics_name_is_measured(exams):
    for version in (1, 2):
        exams.sit(version, "search/a", [1])
        exams.sit(version, "search/b", [0])
    for values in measured(exams).values.values():
        assert values.keys() <= METRICS.keys()


def test_a_candidate_that_is_worse_is_refused_and_one_that_is_as_good_passes(exams, policy):
    for number in range(12):
        exams.sit(1, f"search/{number}", [1, 1])
        exams.sit(2, f"search/{number}", [0, 1])
    decision = decided(policy(WORSE), exams)
    assert not decision.passed
    (reason,) = decision.reasons
    assert reason.startswith("success_difference_high >= 0: it is -0.5")
    same = measure(exams.where, "toy", 1, run="old", against=(1, "old"), resamples=2000)
    assert decide(policy(WORSE), same, name="toy", candidate=1, champion=1).passed


def test_a_regression_in_one_kind_refuses_though_the_total_is_better(exams, policy):
    for number in range(12):
        exams.sit(1, f"search/{number}", [0, 0])
        exams.sit(2, f"search/{number}", [1, 1])
    for number in range(6):
        exams.sit(1, f"swe/{number}", [1], kind="swe")
        exams.sit(2, f"swe/{number}", [0], kind="swe")
    decision = decided(policy(WORSE, per_kind=True), exams)
    assert [reason.partition(":")[0] for reason in decision.reasons] == ["success_difference_high >= 0 of swe"]
    assert decided(policy(WORSE), exams).passed


def test_too_few_pairs_are_a_refusal_with_the_numbers(exams, policy):
    exams.sit(1, "search/a", [1, 1])
    exams.sit(2, "search/a", [1, None])
    decision = decided(policy(WORSE, min_pairs=16), exams)
    assert not decision.passed
    assert (
        "pairs >= 16: it is 1; too few to decide on (candidate: 1 failed, 1 scored; champion: 2 scored)"
        in decision.reasons[0]
    )
    assert "another seed" in decision.reasons[0]


def test_a_kind_with_too_few_problems_refuses_and_is_not_judged(exams, policy):
    for number in range(8):
        for version in (1, 2):
            exams.sit(version, f"search/{number}", [1])
    exams.sit(1, "swe/a", [1], kind="swe")
    exams.sit(2, "swe/a", [0], kind="swe")
    decision = decided(policy(WORSE, per_kind=True, min_problems=3), exams)
    assert [reason.partition(":")[0] for reason in decision.reasons] == ["problems >= 3 of swe"]
    (thin,) = [one for one in decision.verdicts if one.scope == "swe" and one.rule.startswith("success")]
    assert (thin.keeps, thin.note) == (None, "too few problems")


def test_without_a_champion_nothing_is_compared_and_the_rest_holds(exams, policy):
    exams.sit(2, "search/a", [1])
    alone = measure(exams.where, "toy", 2, run="new", against=None)
    found = decide(policy(WORSE, ("success", ">=", 0.5)), alone, name="toy", candidate=2, champion=None)
    assert found.passed
    assert [one.keeps for one in found.verdicts] == [None, True]
    assert not decide(policy(("success", ">", 1)), alone, name="toy", candidate=2, champion=None).passed


def test_what_cannot_be_measured_refuses_unless_the_rule_lets_it_pass(exams, policy):
    exams.sit(2, "search/a", [1])
    alone = measure(exams.where, "toy", 2, run="new", against=None)
    refused = decide(policy(("agreement", "<=", 0.1)), alone, name="toy", candidate=2, champion=None)
    assert refused.reasons == ["agreement <= 0.1: it could not be measured"]
    kind = policy(("agreement", "<=", 0.1))
    lenient = kind.model_copy(update={"rules": [kind.rules[0].model_copy(update={"if_missing": "pass"})]})
    assert decide(lenient, alone, name="toy", candidate=2, champion=None).passed


def test_adjusted_intervals_of_kinds_are_wider_and_the_total_is_the_same(exams):
    for number in range(8):
        for kind in ("search", "swe"):
            exams.sit(1, f"{kind}/{number}", [1], kind=kind)
            exams.sit(2, f"{kind}/{number}", [number % 2], kind=kind)
    plain, wide = measured(exams).values, measured(exams, adjust_kinds=True).values
    assert wide["swe"]["success_difference_low"] < plain["swe"]["success_difference_low"]
    assert wide[TOTAL] == plain[TOTAL]


def test_a_decision_is_written_once_and_answers_in_sql(exams, policy):
    for number in range(6):
        exams.sit(1, f"search/{number}", [1])
        exams.sit(2, f"search/{number}", [0])
    rules = policy(WORSE)
    assert write_down(exams.where, decided(rules, exams), rules, actor="alice")
    assert not write_down(exams.where, decided(rules, exams), rules, actor="bob")  # the same, on the same grounds
    with connect(exams.where) as connection:
        (row,) = connection.sql(
            "select *, measurements ->> '$.values.total.success_difference' as change from gates"
        ).pl().to_dicts()  # fmt: skip
        assert connection.sql("from checks.unique_keys").pl().is_empty()
    assert (row["candidate"], row["champion"], row["passed"], row["decided_by"]) == (2, 1, False, "alice")
    assert float(row["change"]) == -1
    assert row["policy"] == rules.text
    (kept,) = decisions(exams.where, "toy", 2)
    assert json.loads(kept.measurements)["rules"][1]["keeps"] is False
