"""Every objective in a whole run, and what a run knows beside the trained policy."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from lakehouse.records import TrainingRow
from tasks.training.config import TrainConfig
from tasks.training.errors import RowsRefused
from tasks.training.folder import other_weights, weights_digest
from tasks.training.objectives import OBJECTIVES

Configure = Callable[..., TrainConfig]
Train = Callable[[TrainConfig], Path]
Export = Callable[..., Path]


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    """The tests' model with slightly other weights."""
    folder = tmp_path_factory.mktemp("other")
    for file in model_folder.iterdir():
        if file.suffix != ".safetensors":
            (folder / file.name).write_bytes(file.read_bytes())
    generator = torch.Generator().manual_seed(1)
    weights = load_file(model_folder / "model.safetensors")
    moved = {name: value + 0.02 * torch.randn(value.shape, generator=generator) for name, value in weights.items()}
    save_file(moved, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.fixture
def paired(sampled: list[TrainingRow]) -> list[TrainingRow]:
    """Five groups of two episodes, the even one the better."""
    return [row.model_copy(update={"group_id": f"gr-{row.row_index // 2}"}) for row in sampled]


def logprobs(folder: Path, row: TrainingRow) -> np.ndarray:
    """Of the row's trained tokens, by transformers alone."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids, trained = torch.tensor(row.input_ids), np.flatnonzero(row.loss_mask)
    with torch.no_grad():
        every = torch.log_softmax(model(ids[None]).logits[0], -1)
    return every[trained - 1, ids[trained]].numpy()


def entries(config: TrainConfig) -> list[dict[str, float]]:
    lines = (config.work_folder / "metrics.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["step"] > 0]


@pytest.mark.parametrize("name", sorted(set(OBJECTIVES) - {"sft", "grpo"}))
def test_an_objective_trains(
    name: str, configure: Configure, train: Train, paired: list[TrainingRow], export: Export, other: Path
) -> None:
    asked = {"teacher": other} if name == "distill" else {}
    config = configure(objective=name, rows=export(paired), epochs=2, learning_rate=0.003, **asked)
    train(config)
    found = entries(config)
    assert len(found) == 4
    assert all(np.isfinite(entry["loss"]) for entry in found)
    assert found[0]["grad_norm"] > 0


def test_dpo_widens_the_margin_from_zero(
    configure: Configure, train: Train, paired: list[TrainingRow], export: Export, model_folder: Path
) -> None:
    config = configure(objective="dpo", rows=export(paired), epochs=5, learning_rate=0.003, micro_batch_tokens=40)
    output = train(config)
    first, *_, last = entries(config)
    assert first["loss"] == pytest.approx(np.log(2), abs=1e-5)
    assert last["loss"] < 0.9 * first["loss"]
    assert last["dpo_accuracy"] > 0.8
    assert other_weights(output) == []  # the reference is the input model
    better, worse = ((logprobs(output, row) - logprobs(model_folder, row)).sum() for row in paired[:2])
    assert better > worse


def test_distillation_brings_the_student_nearer_to_its_teacher(
    configure: Configure, train: Train, sampled: list[TrainingRow], model_folder: Path, other: Path
) -> None:
    config = configure(objective="distill", teacher=other, epochs=4, learning_rate=0.002, minibatch=10)
    output = train(config)
    before, after, teacher = (
        np.concatenate([logprobs(folder, row) for row in sampled]) for folder in (model_folder, output, other)
    )
    assert entries(config)[0]["kl_to_teacher"] == pytest.approx((before - teacher).mean(), abs=1e-4)
    assert np.corrcoef(after - before, teacher - before)[0, 1] > 0.3
    assert other_weights(output) == [weights_digest(other)]


def test_ppo_learns_values_and_leaves_them_out_of_the_model(
    configure: Configure, train: Train, sampled: list[TrainingRow], export: Export, tmp_path: Path
) -> None:
    rows = export([row.model_copy(update={"advantage": row.reward}) for row in sampled])
    config = configure(objective="ppo", rows=rows, epochs=4, learning_rate=0.003)
    output = train(config)
    first, *_, last = entries(config)
    assert first["value"] == 0
    assert last["value"] != 0
    assert list(load_file(output / "critic" / "value_head.safetensors")) == ["bias", "weight"]
    assert not any("value" in name for name in load_file(output / "model.safetensors"))
    again = configure(objective="ppo", rows=rows, model=output, output=tmp_path / "again", agreement_bound=None)
    train(again)
    assert entries(again)[0]["value"] != 0


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_a_penalty_keeps_the_policy_near_its_reference(
    estimator: str, configure: Configure, train: Train, model_folder: Path, other: Path, tmp_path: Path
) -> None:
    distances = []
    for coefficient in (1e-6, 5.0):
        config = configure(
            objective="grpo",
            kl={"estimator": estimator, "coefficient": coefficient},
            reference=other if estimator == "k1" else model_folder,
            epochs=6,
            learning_rate=0.003,
            output=tmp_path / f"{coefficient}",
        )
        train(config)
        distances.append(abs(entries(config)[-1]["kl_to_reference"]))
    assert estimator == "k1" or entries(config)[0]["kl_to_reference"] == pytest.approx(0, abs=1e-5)
    assert distances[1] < distances[0]


def test_a_reference_is_read_from_its_own_folder(configure: Configure, train: Train, other: Path) -> None:
    config = configure(kl={"coefficient": 0.01}, reference=other, max_steps=1)
    train(config)
    assert entries(config)[0]["kl_to_reference"] > 1e-3


def test_an_entropy_bonus_raises_entropy(configure: Configure, train: Train, tmp_path: Path) -> None:
    last = []
    for bonus in (0.0, 3.0):
        config = configure(entropy_bonus=bonus, epochs=5, learning_rate=0.003, output=tmp_path / f"{bonus}")
        train(config)
        last.append(entries(config)[-1]["entropy"])
    assert last[1] > last[0]


@pytest.mark.parametrize(
    "objective", ["grpo", "dr_grpo", "gspo", "dpo", {"name": "sapo", "aggregation": "token"}], ids=str
)
def test_micro_batches_do_not_change_a_step(
    objective: object, configure: Configure, train: Train, paired: list[TrainingRow], export: Export, tmp_path: Path
) -> None:
    """Neither the loss nor, by way of the next step's loss, the gradient."""
    runs = []
    for budget in (32, 400):
        config = configure(
            objective=objective,
            rows=export(paired),
            micro_batch_tokens=budget,
            minibatch=10,
            epochs=2,
            output=tmp_path / f"{budget}",
        )
        train(config)
        runs.append([(entry["loss"], entry["grad_norm"]) for entry in entries(config)])
    np.testing.assert_allclose(runs[0], runs[1], rtol=2e-4, atol=1e-6)


def test_m2po_bounds_the_step_and_not_the_micro_batch(
    configure: Configure, train: Train, sampled: list[TrainingRow], export: Export, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    noisy = [
        row.model_copy(
            update={
                "logprobs": [lp + m * rng.normal(0, 0.4) for lp, m in zip(row.logprobs, row.loss_mask, strict=True)]
            }
        )
        for row in sampled
    ]
    masked = []
    for budget in (32, 400):
        config = configure(
            rows=export(noisy),
            correction={"name": "m2po", "limit": 0.04},
            micro_batch_tokens=budget,
            minibatch=10,
            agreement_bound=None,
            output=tmp_path / f"{budget}",
        )
        train(config)
        masked.append(entries(config)[0]["importance_masked"])
    assert masked[0] == pytest.approx(masked[1], abs=1e-9)
    assert 0.05 < masked[0] < 0.95


def test_the_approximated_policy_is_the_sampler_on_fresh_rows(configure: Configure, train: Train) -> None:
    config = configure(objective="decoupled_ppo", proximal="approximated")
    train(config)
    assert all(entry["importance_weight"] == pytest.approx(1, abs=1e-6) for entry in entries(config))


def test_a_group_without_a_worst_episode_is_no_pair(
    configure: Configure, train: Train, paired: list[TrainingRow], export: Export
) -> None:
    with pytest.raises(RowsRefused, match=r"gr-0.*a best and a worst"):
        train(configure(objective="dpo", rows=export(paired[1:])))
