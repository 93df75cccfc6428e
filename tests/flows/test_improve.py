"""What is said where rounds had nothing to train on; the rounds themselves run in test_loop."""

import importlib
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from flows import improve as flow
from flows.improve import NothingImproved, Round
from lakehouse.evaluation.exam import Exam
from lakehouse.evaluation.policy import read
from lakehouse.records import ModelVersion
from sandboxes.prompts import SHIPPED, PromptError
from tasks.loop.admission import Infeasible, Terms
from tasks.loop.parts import Standing
from tasks.registry.moves import Moved


def test_rounds_in_which_nothing_was_trained_end_in_their_reasons_and_what_to_do():
    rounds = [
        Round(number=1, left_out={"zero_variance_group": 6, "not_trainable": 2}),
        Round(number=2, left_out={"zero_variance_group": 8}),
    ]
    said = str(NothingImproved(rounds))
    assert "14 zero_variance_group, 2 not_trainable" in said
    assert "every sample of a problem ended alike: take more problems or samples" in said
    assert "select status, error" in said
    assert "singleton" not in said


def test_a_reason_without_a_remedy_of_its_own_leads_to_the_documentation():
    assert "docs/operations.md" in str(NothingImproved([Round(number=1, left_out={"stale": 2})]))


def test_rounds_without_any_episode_say_so():
    assert "no episode landed" in str(NothingImproved([Round(number=1)]))


def test_sync_is_a_staleness_of_nothing_and_another_one_is_refused():
    assert flow._staleness("sync", None) == flow._staleness("sync", 0) == 0
    assert (flow._staleness("async", None), flow._staleness("async", 4)) == (1, 4)
    with pytest.raises(Infeasible, match="mode sync is a staleness of 0, and 2 was asked for: take --mode async"):
        flow._staleness("sync", 2)


def test_evaluations_that_are_too_small_for_the_gate_are_refused_before_anything_runs():
    flow._can_decide(read("default"), Exam(problems={"search": 8}, samples=2))
    with pytest.raises(Infeasible, match="plays 15 episodes and the gate's policy asks for at least 16 pairs"):
        flow._can_decide(read("default"), Exam(problems={"search": 15}))


async def test_a_policy_without_evaluations_is_refused_before_anything_runs(monkeypatch, tmp_path):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    with pytest.raises(Infeasible, match="policy strict is the gate's at evaluations"):
        await flow.improve.fn(policy="strict", evaluate_problems={})


@pytest.fixture
def parts(monkeypatch):
    """Parts of a loop over a registry that the test scripts; `released` lists what was put in service."""
    made = ModelVersion.model_construct(
        parent_version=4, weights_path="w", stage="grpo", training_set_id="t", mlflow_run_id="m"
    )
    released = []

    async def release(folder, **options):
        released.append(options["alias"])

    monkeypatch.setattr(flow, "release", release)
    monkeypatch.setattr(flow.looping, "made", lambda lake, name, version: made)
    stage = SimpleNamespace(settings=SimpleNamespace(model_name="tiny"))
    parts = flow._Parts(Terms(batch=1, steps=4), None, stage, {}, Exam(), "default", "keep", 0.1)
    parts.released = released
    return parts


@pytest.mark.parametrize(("stands", "put_out"), [(4, True), (5, True), (1, False), (9, False)])
async def test_a_version_is_put_in_service_only_while_the_loop_goes_on_from_what_it_was_trained_from(
    monkeypatch, parts, stands, put_out, capsys
):
    monkeypatch.setattr(flow, "stand", lambda own, last, swap: Standing(stands, frozenset({stands})))
    assert await parts.serve(1, 5) == put_out
    assert parts.released == ["challenger"] * put_out
    assert ("version 5 is not put in service: it was trained from 4" in capsys.readouterr().out) != put_out


@pytest.mark.parametrize(("name", "given"), [("collect", {"run_id": "run-7"}), ("improve", {"loop_id": "run-7"})])
async def test_what_goes_on_is_asked_for_its_prompts_before_anything_runs(monkeypatch, tmp_path, name, given):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    module = importlib.import_module(f"flows.{name}")

    async def others(run_id, prompts):
        assert (run_id, prompts) == ("run-7", SHIPPED)
        raise PromptError("it was told something else")

    monkeypatch.setattr(module, "same_prompts", others)
    with pytest.raises(PromptError, match="something else"):
        await getattr(module, name).fn(**given)
    assert not list(tmp_path.glob("**/*.parquet"))


async def test_a_champion_that_somebody_moves_while_the_gate_decides_stays_and_the_loop_goes_on(monkeypatch):
    async def decided(version, **_):
        return SimpleNamespace(passed=True, reasons=[], gate_id="gt-1", champion=3, when_refused="roll_back")

    async def evaluated(**_):
        return None

    def promote(version, *, why, evidence, expected):
        raise Moved(f"champion was moved by bob; {version} was compared with {expected}")

    for name, act in (("gate", decided), ("evaluate", evaluated), ("promote", promote), ("deploying", nullcontext)):
        monkeypatch.setattr(flow, name, act)
    parts = flow._Parts(SimpleNamespace(steps=1), None, None, {}, Exam(problems={"search": 8}), "default", "keep", 0.05)
    parts._rounds[0] = Round(number=1, version=4)
    await parts.examine(0, 4)
    assert (parts._rounds[0].passed, parts._rounds[0].reasons) == (
        True,
        ["champion was moved by bob; 4 was compared with 3"],
    )
