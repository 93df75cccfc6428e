"""The model card says what the lake and the training run know of a version, and nothing else."""

import json
from datetime import UTC, datetime

import pytest

from lakehouse.lineage.cards import facts
from lakehouse.records import Deployment, Erasure, GateDecision, ModelVersion, TrainingSet, dumps
from lakehouse.write import Writer
from tasks.registry.card import card

AT = datetime(2026, 1, 1, tzinfo=UTC)
LEDGER = {"sampled": 100, "trained": 60, "masked": {"prompt": 10}, "dropped": {"stale": 30}}


@pytest.fixture
def version(tmp_path):
    """Adds a version of tiny to the lake; its facts."""
    lake = str(tmp_path / "lake")

    def make(number, parent=None, training_set=None, **more):
        row = ModelVersion(
            name="tiny", version=number, parent_version=parent, training_set_id=training_set, mlflow_run_id=f"run{number}",
            weights_path="w", weights_digest="d" * 64, stage="grpo" if parent else "base", commit="c0ffee" if parent else "",
            created_at=AT, **more,
        )  # fmt: skip
        Writer(lake).append("model_versions", [row])
        return lambda: facts(lake, "tiny", number)

    make.lake = lake
    return make


def learnt(version):
    Writer(version.lake).append(
        "training_sets",
        [
            TrainingSet(
                training_set_id="ts-1", objective="grpo", rubrics=["search@2"], filter="grpo+short",
                table_versions='{"calls": 7}', policy_version=1, n_rows=5, n_episodes=4, n_trained_tokens=60,
                ledger=json.dumps(LEDGER), digest="e", created_at=AT,
            )
        ],
    )  # fmt: skip
    version(1)
    return version(2, 1, "ts-1", licences=["MIT", "CC-BY-4.0"], allowed_uses=["training"], learnt_from=["big@4"])


def test_a_base_version_says_that_nothing_was_measured_and_nothing_is_known_of_its_data(version):
    told = card(version(1)(), mlflow_url="http://mlflow")
    assert "# tiny version 1" in told
    assert "not trained from another" in told
    assert "Nothing has been measured" in told
    assert "Licences of the data: not known" in told
    assert "## Training data" not in told and "## Training run" not in told and "Tainted" not in told
    assert 'load_model("models:/tiny/1"' in told and 'set_tracking_uri("http://mlflow")' in told


def test_a_trained_version_tells_its_lineage_data_rubrics_licences_and_what_became_of_the_tokens(version):
    told = card(learnt(version)())
    for said in (
        "trained from version 1", "version 2 (grpo) ← version 1 (base)", "commit `c0ffee`", "`ts-1`: objective grpo, 5 rows of 4",
        "Rubrics: search@2; filter: grpo+short", "Delta versions: calls 7", "Licences of the data: MIT, CC-BY-4.0",
        "Allowed uses: training", "trained from version 1, with big@4 as teacher or reference,",
        "100 sampled, 60 trained; the others: prompt 10, stale 30", "d" * 64,
    ):  # fmt: skip
        assert said in told, said


def test_curves_gate_and_proof_are_told_with_their_numbers(version):
    made = learnt(version)
    Writer(version.lake).append(
        "gates",
        [
            GateDecision(
                gate_id="g", name="tiny", candidate=2, champion=1, policy_digest="p", policy="", measurements="{}",
                passed=False, reasons=["worse on swe | by 3"], decided_at=AT, decided_by="alice",
            )
        ],
    )  # fmt: skip
    Writer(version.lake).append(
        "deployments",
        [
            Deployment(
                deployment_id="d", name="tiny", version=2, engine_url="http://e", proof="{}", accepted=True,
                reason="agrees within 0.001", deployed_at=AT,
            )
        ],
    )  # fmt: skip
    entries = [{"step": n, "loss": 1.0 - n / 10, "reward/search": n / 10} for n in range(1, 6)]
    told = card(made(), entries=entries, diagnosis=["slow: raise the rate"], mlflow_url="http://mlflow")
    assert "| 2026-01-01 00:00 by alice | version 1 | **no** | worse on swe \\| by 3 |" in told
    assert "proof on http://e" in told and "accepted, agrees within 0.001" in told
    assert "| loss per trained token | 0.9 | 0.5 | █▆▄▃▁ |" in told
    assert "| reward, search | 0.1 | 0.5 |" in told
    assert "* slow: raise the rate" in told
    assert "http://mlflow/#/runs/run2" in told


def test_a_version_that_learnt_from_what_was_erased_says_so_at_the_top(version):
    made = learnt(version)
    erasure = Erasure(
        erasure_id="er-9", subject=None, episode_ids=["t"], reason="asked", requested_by="alice", rows=dumps({}), files=0,
        scanned="{}", tainted=["tiny@2"], signature="s", erased_at=AT, training_sets=["ts-1"],
    )  # fmt: skip
    Writer(version.lake).append("erasures", [erasure])
    assert "**Tainted**: erasure `er-9`" in card(made()).partition("## Load it")[0]
