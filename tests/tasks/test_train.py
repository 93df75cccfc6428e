"""What `fit` tells the trainer of its rows, and what it refuses before it starts one."""

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from lakehouse.records import TrainingSet, dumps
from lakehouse.selection.select import Selection
from tasks import train
from tasks.train import TrainingFailed, fit
from tasks.training.config import TrainConfig


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
