"""A run that does not learn says why: each cause is made, in a real run of the tiny model."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lakehouse.records import TrainingRow
from tasks.training import folder
from tasks.training.config import TrainConfig
from tasks.training.diagnosis import Diagnosis, diagnose, history
from tasks.training.errors import NotFinite
from tasks.training.recipes import recipe


@pytest.fixture
def diagnosed(configure, train, export) -> Callable[..., list[Diagnosis]]:
    """Trains on rows and diagnoses; the summary of the run must say the same."""

    def go(rows: list[TrainingRow], **settings: object) -> list[Diagnosis]:
        numbered = [row.model_copy(update={"row_index": i, "episode_id": f"ep-{i}"}) for i, row in enumerate(rows)]
        config: TrainConfig = configure(rows=export(numbered), **settings)
        output: Path = train(config)
        found = diagnose(history(config.work_folder / "metrics.jsonl"))
        assert [Diagnosis(**one) for one in json.loads((output / folder.SUMMARY).read_text())["diagnosis"]] == found
        return found

    return go


def names(found: list[Diagnosis]) -> list[str]:
    return [one.name for one in found]


def shifted(row: TrainingRow, nats: float) -> TrainingRow:
    """As if the sampler had found the row's tokens so much likelier than the trainer does."""
    return row.model_copy(
        update={"logprobs": [lp + nats * m for lp, m in zip(row.logprobs, row.loss_mask, strict=True)]}
    )


def advantaged(row: TrainingRow, advantage: float) -> TrainingRow:
    return row.model_copy(update={"advantage": advantage})


def test_a_run_that_learns_has_no_diagnosis(diagnosed, sampled) -> None:
    assert diagnosed(sampled, learning_rate=3e-4, epochs=2) == []


def test_learning_rate_zero(diagnosed, sampled, capsys) -> None:
    assert names(diagnosed(sampled, learning_rate=0)) == ["learning rate 0"]
    assert "not learning, learning rate 0: no step changed a weight. Set learning_rate" in capsys.readouterr().err


def test_groups_without_spread(diagnosed, sampled) -> None:
    rows = [advantaged(row, float(i == 0)) for i, row in enumerate(sampled * 3)]
    (found,) = diagnosed(rows, minibatch=30)
    assert found.name == "no spread"
    assert "9" in found.cause and "have an advantage of 0" in found.cause


def test_tokens_that_are_masked_away(diagnosed, sampled) -> None:
    ids = (sampled[0].input_ids * 20)[:128]
    mask = [0] * 127 + [1]
    columns = {"input_ids": ids, "loss_mask": mask, "logprobs": [0.0] * 128, "weight_versions": [-1] * 128}
    found = diagnosed([sampled[0].model_copy(update=columns)] * 2, objective="sft", max_seq_len=128)
    assert names(found) == ["masked away"]
    assert "0.78% of the tokens read" in found[0].cause


def test_everything_clipped(diagnosed, sampled) -> None:
    rows = [shifted(row, -np.sign(row.advantage)) for row in sampled]
    found = diagnosed(rows, proximal="behaviour", policy_version=4)
    assert names(found) == ["everything clipped"]
    assert found[0].cause.startswith("100.0% of the tokens with an advantage")


def test_everything_clipped_where_only_successes_are_learnt_from(diagnosed, sampled) -> None:
    """As the recipe has it: a failed episode's tokens can lose no gradient, for negative_scale leaves them none."""
    rows = [shifted(row, -np.sign(row.advantage)) for row in sampled]
    (found,) = diagnosed(rows, **recipe("grpo", {}, None) | {"minibatch": 5, "policy_version": 4})
    assert found.name == "everything clipped"
    assert found.cause.startswith("100.0% of the tokens with an advantage")


def test_stale_rows_where_the_sampler_is_the_proximal_policy(diagnosed, sampled) -> None:
    """As the recipe has it: no importance weight says so, for the ratio itself is to the sampler."""
    rows = [shifted(row, 6.0 if i else 0.0) for i, row in enumerate(sampled)]
    found = diagnosed(rows, **recipe("grpo", {}, None) | {"learning_rate": 1e-4, "policy_version": 7})
    assert "stale rows" in names(found)
    assert "KL explosion" not in names(found)  # it was as far in the first step


def test_a_kl_explosion_is_told_from_the_sampler_where_that_is_the_proximal_policy(diagnosed, sampled) -> None:
    found = diagnosed(sampled, **recipe("grpo", {}, None) | {"learning_rate": 0.3, "epochs": 6, "minibatch": 5})
    (told,) = [one for one in found if one.name == "KL explosion"]
    assert "nats per token from the sampler, and went there from 0" in told.cause


def test_tokens_that_the_correction_drops(diagnosed, sampled) -> None:
    rows = [shifted(row, -6.0) for row in sampled]
    found = diagnosed(rows, correction={"name": "mask"}, policy_version=4)
    (told,) = [one for one in found if one.name == "masked away"]
    assert told.cause.startswith("the off-policy correction drops 100.0% of the trained tokens")


def test_a_kl_explosion(diagnosed, sampled) -> None:
    assert "KL explosion" in names(diagnosed(sampled, learning_rate=0.3, epochs=6))


def test_entropy_collapse(diagnosed, sampled) -> None:
    rows = [advantaged(sampled[0], 1.0)] * 5
    open_ended = {"name": "grpo", "clip_high": 1e9}
    assert "entropy collapse" in names(diagnosed(rows, objective=open_ended, learning_rate=0.02, epochs=40))


def test_an_effective_sample_size_that_collapsed(diagnosed, sampled) -> None:
    rows = [shifted(row, 6.0 if i else 0.0) for i, row in enumerate(sampled * 3)]
    assert names(diagnosed(rows, learning_rate=1e-4, policy_version=4, minibatch=15)) == [
        "effective sample size collapsed"
    ]


def test_stale_rows(diagnosed, sampled) -> None:
    rows = [shifted(row, 6.0 if i % 3 else 0.0) for i, row in enumerate(sampled)]
    (found,) = diagnosed(rows, learning_rate=1e-4, policy_version=7, minibatch=10)
    assert found.name == "stale rows"
    assert "4 versions old" in found.cause


def test_a_gradient_that_vanished(diagnosed, sampled) -> None:
    rows = [advantaged(row, 1e-12 * row.advantage) for row in sampled]
    assert names(diagnosed(rows, learning_rate=1e-6)) == ["gradient vanished"]


def test_steps_that_are_all_skipped_stop_the_run(configure, train, export, sampled) -> None:
    config = configure(rows=export([advantaged(row, 3e38) for row in sampled]))
    with pytest.raises(NotFinite, match="every step was skipped"):
        train(config)
    (found,) = diagnose(history(config.work_folder / "metrics.jsonl"))
    assert found.name == "steps skipped"
    assert "2 of 2 steps" in found.cause


def test_a_bad_start_is_forgiven_and_a_run_without_steps_is_not_judged() -> None:
    good = {"loss": 1.0, "learning_rate": 1, "clip_fraction": 0.0}
    bad = good | {"clip_fraction": 1.0}
    assert diagnose([bad, bad, good, good, good]) == []
    assert names(diagnose([good, bad, bad])) == ["everything clipped"]
    assert diagnose([{"step": 0, "agreement/mean": 0.1}]) == []
    assert diagnose([]) == []
