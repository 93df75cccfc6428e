"""The config is cheap to build and strict."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError

from tasks.training.config import TrainConfig, launch_command
from tasks.training.objectives import OBJECTIVES, ObjectiveName
from tasks.training.recipes import recipe

MINIMAL = {"objective": "sft", "model": "m", "rows": "r.parquet", "output": "o", "learning_rate": 1e-3}


@pytest.mark.parametrize(
    "module", ["config", "objectives", "folder", "step.aggregation", "data.loading", "data.packing", "saving.identity"]
)
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


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"objective": "grpo", "kl": {"coefficient": 0.1}}, "kl without a reference"),
        (
            {"objective": "grpo", "kl": {"coefficient": 0.1, "estimator": "k1"}, "reference": "m"},
            "k1 to the input model",
        ),
        ({"objective": "grpo", "reference": "r"}, "a reference that nothing reads"),
        ({"objective": "grpo", "teacher": "t"}, "a teacher that nothing reads"),
        ({"objective": "distill"}, "distill without a teacher"),
        ({"objective": "decoupled_ppo", "correction": None}, "decoupled_ppo without a correction"),
        ({"objective": "decoupled_ppo", "proximal": "behaviour"}, "plain ppo clipping"),
        ({"objective": "grpo", "proximal": "behaviour", "correction": "icepop"}, "would all be 1"),
        ({"objective": "sft", "correction": "kpop"}, "no behaviour log-probs"),
        ({"objective": "sft", "entropy_bonus": 0.1}, "the policy sampled itself"),
        ({"objective": "rloo", "correction": "icepop"}, "level=sequence"),
        ({"objective": "ppo", "correction": {"name": "mask", "level": "sequence"}}, "differ from token to token"),
        ({"objective": "decoupled_ppo", "proximal": "approximated", "correction": "m2po"}, "m2po with"),
        ({"objective": "dr_grpo", "advantage": "grpo"}, "advantages are 'grpo' and dr_grpo takes dr_grpo"),
        ({"objective": "grpo", "temperature": 0}, "temperature 0"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(asked: dict[str, object], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        TrainConfig.model_validate(MINIMAL | asked)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_documented_objective_loads_by_name_and_by_recipe(name: str) -> None:
    documented = (Path(__file__).parents[3] / "docs" / "objectives.md").read_text()
    assert f"| `{name}` |" in documented
    own = {"teacher": "t"} if name == "distill" else {}
    for settings in ({"objective": name}, recipe(name, {}, None)):
        config = TrainConfig.model_validate(MINIMAL | own | settings)
        assert config.objective == TrainConfig.model_validate_json(config.model_dump_json()).objective
        assert config.objective.name == name


def test_the_objectives_names_are_those_of_the_command() -> None:
    assert get_args(ObjectiveName) == tuple(OBJECTIVES)
