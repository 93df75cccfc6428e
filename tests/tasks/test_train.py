"""What `fit` tells the trainer of its rows, what it refuses before it starts one, and the links between its two records."""

import json
import logging
import sys
from datetime import UTC, datetime

import psutil
import pytest
from pydantic import ValidationError

from lakehouse.records import TrainingSet, dumps
from lakehouse.selection.select import Selection
from tasks import train
from tasks.stack.settings import Settings
from tasks.train import TrainingFailed, fit
from tasks.training import outbox
from tasks.training.config import TrainConfig
from tasks.training.folder import SUMMARY


class Exported(Exception):
    """The rows would be exported now: nothing was refused."""


@pytest.fixture
def pinned(monkeypatch):
    """A training set in the lake: the objective it was selected for, its advantages, the temperature of its rollouts."""

    def there(objective: str, advantage: str | None, temperature: float = 1.0) -> None:
        asked = Selection(objective=objective, rubrics=["search@2"], filter="grpo", advantage=advantage or "grpo")
        known = TrainingSet(
            training_set_id="ts-1", objective=objective, rubrics=["search@2"], filter="grpo", table_versions="{}",
            policy_version=1, n_rows=2, n_episodes=2, n_trained_tokens=4, ledger="{}", digest="d",
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
            selection=advantage and dumps({"asked": asked.model_dump(), "settings": {}, "filters": []}),
        )  # fmt: skip

        def export(lake, training_set_id, path):
            raise Exported

        monkeypatch.setattr(train, "training_set", lambda lake, name: known)
        monkeypatch.setattr(train, "rollout_temperature", lambda lake, name: temperature)
        monkeypatch.setattr(train, "export_rows", export)

    return there


async def fitted(tmp_path, objective):
    config = {"objective": objective, "model": tmp_path, "rows": tmp_path / "r", "output": tmp_path / "o"}
    await fit.fn("ts-1", TrainConfig.model_validate(config | {"learning_rate": 1e-3}), 1.0)


@pytest.mark.parametrize(("objective", "advantage"), [("dr_grpo", "grpo"), ("ppo", "rloo"), ("dpo", "grpo")])
async def test_a_set_whose_advantages_do_not_fit_the_objective_is_refused_by_name(
    tmp_path, pinned, objective, advantage
):
    pinned("grpo", advantage)
    with pytest.raises(ValidationError, match=rf"(?s){objective}.*{advantage}|{advantage}.*{objective}"):
        await fitted(tmp_path, objective)


@pytest.mark.parametrize(
    ("objective", "advantage"), [("rloo", "rloo"), ("reinforce_pp", "reinforce_pp_baseline"), ("ppo", "reward")]
)
async def test_a_set_whose_advantages_fit_is_trained_on(tmp_path, pinned, objective, advantage):
    pinned(objective, advantage)
    with pytest.raises(Exported):
        await fitted(tmp_path, objective)


async def test_a_set_of_an_earlier_release_has_the_advantages_that_it_had(tmp_path, pinned):
    pinned("grpo", None)
    with pytest.raises(Exported):
        await fitted(tmp_path, "grpo")
    with pytest.raises(ValidationError, match="grpo"):
        await fitted(tmp_path, "rloo")


async def test_rollouts_of_temperature_0_are_refused_where_samples_are_compared(tmp_path, pinned):
    pinned("grpo", "grpo", temperature=0.0)
    with pytest.raises(TrainingFailed, match=r"sampled at temperature 0: .* grpo has nothing to compare"):
        await fitted(tmp_path, "grpo")
    pinned("sft", "none", temperature=0.0)
    with pytest.raises(Exported):
        await fitted(tmp_path, "sft")


TRAINER = f"""
import json, pathlib, sys
told = json.loads(pathlib.Path(sys.argv[1]).read_text())
state = {{"facts": {{}}, "target": told["mlflow"], "run_id": "made"}}
(pathlib.Path(told["work"]) / "{outbox.STATE}").write_text(json.dumps(state))
pathlib.Path(told["output"]).mkdir()
(pathlib.Path(told["output"]) / "{SUMMARY}").write_text(json.dumps({{"last_step": {{}}, "diagnosis": []}}))
"""


async def test_the_mlflow_run_leads_to_the_flow_run_and_back(tmp_path, pinned, monkeypatch):
    pinned("sft", "none")
    shown = {}

    async def show(create, **what):
        shown[what["key"]] = what

    monkeypatch.setenv("PREFECT__RUNTIME__FLOW_RUN__ID", "f-1")
    monkeypatch.setattr(train, "export_rows", lambda *_: None)
    monkeypatch.setattr(train.store, "versions", lambda lake: {"training_rows": 7})
    monkeypatch.setattr(train, "launch_command", lambda file, ranks: [sys.executable, "-c", TRAINER, str(file)])
    monkeypatch.setattr(train, "get_run_logger", logging.getLogger)
    monkeypatch.setattr(train, "ashow", show)
    places = {"model": tmp_path, "rows": tmp_path / "r", "output": tmp_path / "o", "work": tmp_path / "w"}
    target = {"tracking_uri": "http://mlflow:5000", "run_name": "sft-1", "tags": {"own": "kept"}}
    config = {"objective": "sft", "learning_rate": 1e-3, "mlflow": target, **places}
    fitted = await fit.fn("ts-1", TrainConfig.model_validate(config), 60.0)

    page = Settings().prefect_url.removesuffix("/api") + "/runs/flow-run/f-1"
    tags = json.loads((tmp_path / "w" / "config.json").read_text())["mlflow"]["tags"]
    assert (tags["own"], tags["prefect.flow_run_id"], tags["prefect.flow_run_url"]) == ("kept", "f-1", page)
    assert f"[Prefect flow run]({page})" in tags["mlflow.note.content"]
    assert fitted.mlflow_run_id == "made"
    assert shown["mlflow-run"]["link"] == "http://mlflow:5000/#/runs/made"
    assert shown["mlflow-run"]["link_text"] == "MLflow: sft-1"


STARTING = """
import subprocess, sys, time
rank = [sys.executable, "-c", "import time; time.sleep(300)", "tasks.training", sys.argv[1]]
subprocess.Popen(rank, start_new_session=True)
print("started", flush=True)
time.sleep(300)
"""


async def test_a_trainer_whose_time_is_over_leaves_no_rank_that_its_launcher_did_not_know_of(
    tmp_path, pinned, monkeypatch
):
    """As torchrun is, where the signal meets it between the start of a rank and its own note of that."""
    pinned("sft", "none")
    monkeypatch.setattr(train, "export_rows", lambda *_: None)
    monkeypatch.setattr(train, "launch_command", lambda file, ranks: [sys.executable, "-c", STARTING, str(file)])
    monkeypatch.setattr(train, "get_run_logger", logging.getLogger)
    places = {"model": tmp_path, "rows": tmp_path / "r", "output": tmp_path / "o", "work": tmp_path / "w"}
    config = TrainConfig.model_validate({"objective": "sft", "learning_rate": 1e-3, **places})
    with pytest.raises(TrainingFailed, match=r"took longer than 3 s(?s:.*)started"):
        await fit.fn("ts-1", config, 3.0)
    assert [one for one in psutil.process_iter(["cmdline"]) if str(tmp_path) in str(one.info["cmdline"])] == []
