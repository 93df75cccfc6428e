"""What a loop finds of itself in the lake."""

import json
from datetime import UTC, datetime

import pytest

from lakehouse import looping
from lakehouse.governance.audit import note
from lakehouse.label import label
from lakehouse.query import query
from lakehouse.records import Deployment, group_id
from lakehouse.selection.select import LoopStep, NothingTrainable, Selection, select
from lakehouse.write import Writer

ASKED = {"model_name": "toy", "rubrics": ["search@2"]}
GRPO = Selection(objective="grpo", rubrics=["search@2"], filter="grpo", policy_version=1, model_name="toy")


@pytest.fixture
def played(lake, make):
    """Dispatches groups of a loop and lands what was played of them: outcomes by problem, None where a sample is missing."""

    def play(*, loop="L", run="r", samples=3, **outcomes):
        Writer(lake).append("problems", [make.problem(name) for name in outcomes])
        for name, ended in outcomes.items():
            intents = [make.dispatch(name, sample, run=run, loop_id=loop) for sample in range(samples)]
            Writer(lake).append("dispatches", intents)
            for sample, outcome in enumerate(ended):
                if outcome == "env_error":
                    make.batch(name, sample, run=run, status=outcome, match=None).land(lake)
                elif outcome is not None:
                    make.batch(name, sample, run=run, match=outcome).land(lake)
        label(lake, "search@2", max_unjudged=1)
        return lake

    return play


def test_a_group_settles_when_all_its_samples_have_ended_and_says_what_the_selection_would(played):
    lake = played(a=[True, False, "env_error"], b=[True, True, None])
    (group,) = looping.settled(lake, "L", **ASKED)
    assert (group.problem_id, group.samples, group.spread) == ("a", 3, 1.0)
    assert (group.scored, group.failures) == ([[1], [1]], ["env_error"])
    assert [one.sample_index for one in looping.left(lake, "L")] == [2]


def test_a_sample_in_quarantine_has_ended(played, make, lake):
    played(a=[True, False, None])
    broken = make.batch("a", 2, run="r", n_completion_tokens=-1)
    assert broken.land(lake).quarantined
    (group,) = looping.settled(lake, "L", **ASKED)
    assert group.failures == ["quarantined"]
    assert looping.left(lake, "L") == []


def test_groups_of_other_loops_and_runs_are_not_its_own(played, lake):
    played(a=[True, False, True])
    played(loop="M", run="s", b=[True, False, True])
    played(loop=None, run="t", c=[True, False, True])
    assert [one.problem_id for one in looping.settled(lake, "L", **ASKED)] == ["a"]
    assert looping.runs(lake, "L") == ["r"]
    assert looping.settled(lake, "L", **ASKED, group_ids=["another"]) == []


def test_a_step_consumes_the_groups_it_was_selected_over_trained_and_dropped_alike(played, lake):
    played(a=[True, False, True], b=[True, True, True], c=[True, False, False])
    groups = [group_id("r", name) for name in ("a", "b")]
    made = select(lake, GRPO.model_copy(update={"group_ids": groups}), LoopStep("L", 0))
    assert (made.episodes, made.reasons) == (3, {"zero_variance_group": 3})
    (step,) = looping.steps(lake, "L", model_name="toy")
    assert (step.number, step.rows, step.policy_version, step.group_ids) == (0, 3, 1, groups)
    assert (step.version, step.deployed) == (None, False)


def test_fresh_samples_that_ended_alike_are_compared_with_the_old_ones_that_did_not_so_the_spread_is_over_all(
    make, lake
):
    """As admission counts it: the old samples are not trained on, and are what the young ones did better than."""
    Writer(lake).append("problems", [make.problem("a")])
    for sample, (version, match) in enumerate([(2, True), (2, True), (1, True), (1, False)]):
        Writer(lake).append("dispatches", [make.dispatch("a", sample, run="r", loop_id="L")])
        calls = [make.call([1, 2, 3], [4, 5], version=version)]
        make.batch("a", sample, run="r", match=match, calls=calls, model_version=version).land(lake)
    label(lake, "search@2", max_unjudged=1)
    Writer(lake).append("model_versions", [make.version(1), make.version(2, 1)])
    (group,) = looping.settled(lake, "L", **ASKED)
    assert group.spread == 1.0
    asked = {"group_ids": [group.group_id], "policy_version": 2, "max_staleness": 0}
    made = select(lake, GRPO.model_copy(update=asked), LoopStep("L", 0))
    assert made.reasons == {"stale": 2}
    advantages = query("select advantage from training_rows", lake)["advantage"].to_list()
    assert len(advantages) == 2 and min(advantages) > 0.4


def test_a_batch_with_nothing_to_train_on_is_written_down_with_its_ledger(played, lake):
    played(a=[True, True, True])
    asked = GRPO.model_copy(update={"group_ids": [group_id("r", "a")]})
    with pytest.raises(NothingTrainable):
        select(lake, asked, LoopStep("L", 0))
    (step,) = looping.steps(lake, "L", model_name="toy")
    assert (step.number, step.rows, step.group_ids) == (0, 0, [group_id("r", "a")])
    (held,) = query("from training_sets", lake).to_dicts()
    assert json.loads(held["ledger"])["dropped"] == {"zero_variance_group": 6}
    assert query("from training_rows", lake).is_empty()
    assert query("from checks.token_ledger", lake).is_empty()
    with pytest.raises(NothingTrainable):  # nothing of it is there outside of a loop
        select(lake, asked.model_copy(update={"max_staleness": 1}))
    assert query("from training_sets", lake).height == 1


def test_a_step_is_deployed_once_its_version_is_proven(played, make, lake):
    played(a=[True, False, True])
    made = select(lake, GRPO.model_copy(update={"group_ids": [group_id("r", "a")]}), LoopStep("L", 0))
    version = make.version(2, 1).model_copy(update={"training_set_id": made.training_set_id})
    Writer(lake).append("model_versions", [make.version(1), version])

    def deployed(accepted):
        values = {"name": "toy", "version": 2, "engine_url": "e", "proof": "{}", "reason": "r"}
        at = datetime(2026, 1, 1, tzinfo=UTC)
        record = Deployment(deployment_id=f"d{accepted}", accepted=accepted, deployed_at=at, **values)
        Writer(lake).append("deployments", [record])
        (step,) = looping.steps(lake, "L", model_name="toy")
        return step.version, step.deployed

    assert deployed(accepted=False) == (2, False)
    assert deployed(accepted=True) == (2, True)
    (step,) = looping.steps(lake, "L", model_name="toy")
    assert not step.finished
    note(lake, "move alias", "toy@champion", {"from": 1, "to": 2}, actor="somebody")
    (step,) = looping.steps(lake, "L", model_name="toy")
    assert step.finished
    assert looping.lineage(lake, "toy", 2) == {1, 2}
    assert looping.lineage(lake, "toy", 9) == {9}


def test_a_move_of_the_champion_overrules_what_was_in_training_then_and_not_what_began_later(played, make, lake):
    played(a=[True, False, True], b=[True, False, True])

    def version(number, group, step):
        made = select(lake, GRPO.model_copy(update={"group_ids": [group_id("r", group)]}), LoopStep("L", step))
        version = make.version(number, number - 1).model_copy(update={"training_set_id": made.training_set_id})
        return lambda: Writer(lake).append("model_versions", [version])

    note(lake, "move alias", "toy@champion", {"to": 1}, actor="somebody")
    registered = version(2, "a", 0)
    registered()
    assert not looping.overruled(lake, "toy", 2)
    note(lake, "move alias", "toy@challenger", {"to": 2}, actor="somebody")
    note(lake, "move alias", "toy2@champion", {"to": 2}, actor="somebody")
    note(lake, "refuse version", "toy@champion", {"to": 2}, actor="somebody")
    assert not looping.overruled(lake, "toy", 2)
    in_training = version(3, "b", 1)
    note(lake, "move alias", "toy@champion", {"to": 1}, actor="mlflow-ui")
    in_training()
    note(lake, "move alias", "toy@challenger", {"to": 3}, actor="somebody")
    assert looping.overruled(lake, "toy", 2) and looping.overruled(lake, "toy", 3)
    Writer(lake).append("model_versions", [make.version(4).model_copy(update={"created_at": datetime.now(UTC)})])
    assert not looping.overruled(lake, "toy", 4)  # from no training set
    assert not looping.overruled(lake, "toy", 9)


def test_whole_leaves_out_the_groups_of_which_a_sample_has_no_reward(played, lake):
    played(a=[True, False, "env_error"], b=[True, False, False])
    made = select(lake, GRPO.model_copy(update={"filter": "grpo+whole"}))
    assert (made.episodes, made.reasons) == (3, {"not_trainable": 1, "partial_group": 2})
