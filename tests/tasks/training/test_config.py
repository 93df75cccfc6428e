"""The config is cheap to build and strict."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from tasks.training.config import TrainConfig, launch_command

MINIMAL = {"objective": "sft", "model": "m", "rows": "r.parquet", "output": "o", "learning_rate": 1e-3}


@pytest.mark.parametrize("module", ["config", "objectives", "aggregation", "folder", "data", "packing", "identity"])
def test_a_module_that_flows_may_import_imports_no_torch(module: str) -> None:
    probe = f"import sys, tasks.training.{module}; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False, timeout=60).returncode == 0


def test_unknown_keys_are_refused_at_every_level() -> None:
    for wrong in (
        {"lr": 1},
        {"objective": {"name": "grpo", "clip": 1}},
        {"mlflow": {"tracking_uri": "http://x", "uri": 1}},
    ):
        with pytest.raises(ValidationError, match="Extra inputs"):
            TrainConfig.model_validate(MINIMAL | wrong)


def test_the_output_may_not_be_the_input() -> None:
    with pytest.raises(ValidationError, match="immutable"):
        TrainConfig.model_validate(MINIMAL | {"output": "./m"})


def test_a_config_survives_json() -> None:
    config = TrainConfig.model_validate(MINIMAL)
    assert TrainConfig.model_validate_json(config.model_dump_json()) == config
    assert config.work_folder == Path("o.work")


def test_the_launch_command_names_ranks_and_config() -> None:
    assert launch_command(Path("run.json"), 2)[-5:] == [
        "--nproc-per-node=2",
        "-m",
        "tasks.training",
        "--config",
        "run.json",
    ]
