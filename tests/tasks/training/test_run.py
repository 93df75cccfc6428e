"""What a whole run promises, on one rank in this process."""

import fcntl
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from lakehouse.records import TrainingRow
from tasks.training import folder
from tasks.training.config import TrainConfig
from tasks.training.data import loading
from tasks.training.errors import Disagreement, LedgerGap, NotFinite, TrainingError
from tasks.training.honesty import agreement

Configure = Callable[..., TrainConfig]
Train = Callable[[TrainConfig], Path]
Export = Callable[..., Path]


def logged(config: TrainConfig) -> list[dict[str, float]]:
    return [json.loads(line) for line in (config.work_folder / "metrics.jsonl").read_text().splitlines()]


def mean_logprob(model_folder: Path, rows: list[TrainingRow]) -> float:
    """Mean log-prob of the trained tokens under the model in the folder, computed by transformers alone."""
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    values = []
    for row in rows:
        ids, trained = torch.tensor(row.input_ids), np.flatnonzero(row.loss_mask)
        with torch.no_grad():
            every = torch.log_softmax(model(ids[None]).logits[0], -1)
        values.append(every[trained - 1, ids[trained]].mean().item())
    return float(np.mean(values))


def test_a_learning_rate_of_zero_changes_no_weight(configure: Configure, train: Train, model_folder: Path) -> None:
    output = train(configure(learning_rate=0, weight_decay=0.1, epochs=2))
    before, after = (load_file(path / "model.safetensors") for path in (model_folder, output))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_sft_lowers_the_loss(
    configure: Configure, train: Train, sampled: list[TrainingRow], model_folder: Path
) -> None:
    config = configure(objective="sft", epochs=6, schedule="cosine", warmup_steps=2)
    output = train(config)
    losses = [entry["loss"] for entry in logged(config) if "loss" in entry]
    assert losses[0] == pytest.approx(-mean_of_first_minibatch(config, sampled), rel=1e-4)
    assert losses[-1] < 0.8 * losses[0]
    assert mean_logprob(output, sampled) > mean_logprob(model_folder, sampled) + 0.5


def mean_of_first_minibatch(config: TrainConfig, sampled: list[TrainingRow]) -> float:
    order = np.random.default_rng([config.seed, 0]).permutation(10)[:5]
    return float(
        np.mean([lp for i in order for lp, m in zip(sampled[i].logprobs, sampled[i].loss_mask, strict=True) if m])
    )


@pytest.mark.parametrize("proximal", ["recomputed", "behaviour"])
def test_grpo_raises_rewarded_tokens_and_lowers_the_others(
    proximal: str, configure: Configure, train: Train, sampled: list[TrainingRow], model_folder: Path
) -> None:
    config = configure(epochs=3, learning_rate=0.003, proximal=proximal)
    output = train(config)
    for rows, sign in ((sampled[::2], 1), (sampled[1::2], -1)):
        assert sign * (mean_logprob(output, rows) - mean_logprob(model_folder, rows)) > 0.05
    first, *_, last = [entry for entry in logged(config) if entry["step"] > 0]
    assert first["ratio"] == pytest.approx(1, abs=1e-4)
    assert first["effective_sample_size"] == pytest.approx(1, abs=1e-4)
    assert first["clip_fraction"] == 0 < last["clip_fraction"]
    assert first["advantage/positive_mean"] == 1
    assert first["advantage/negative_mean"] == -1


def test_agreement_with_the_engine_is_reported(
    configure: Configure, train: Train, sampled: list[TrainingRow], export: Export
) -> None:
    apart = [row.model_copy(update={"logprobs": [lp - 2e-5 for lp in row.logprobs]}) for row in sampled]
    config = configure(rows=export(apart))
    summary = json.loads((train(config) / folder.SUMMARY).read_text())
    assert summary["agreement"]["tokens"] > 100
    assert summary["agreement"]["max"] < 1e-4
    assert logged(config)[1]["agreement/mean"] == summary["agreement"]["mean"]
    by_position = summary["agreement"]["by_position"]
    assert list(by_position) == ["0-15", "16-63"]
    assert list(by_position.values()) == pytest.approx([2e-5] * 2, rel=0.1)


@pytest.mark.parametrize("proximal", ["recomputed", "behaviour"])
def test_disagreement_on_on_policy_rows_stops_the_run(
    proximal: str, configure: Configure, train: Train, sampled: list[TrainingRow], export: Export
) -> None:
    shifted = [row.model_copy(update={"logprobs": [lp - 0.2 for lp in row.logprobs]}) for row in sampled]
    config = configure(rows=export(shifted), proximal=proximal)
    with pytest.raises(Disagreement, match=r"disagree by 0\.2 nats .* agreement_bound is 0\.05.*ep-\d#"):
        train(config)
    assert not config.output.exists()
    train(config.model_copy(update={"policy_version": 4}))  # the same rows, one version stale: expected to differ


@pytest.mark.parametrize("seed", range(4))
def test_disagreement_stops_the_run_wherever_the_on_policy_rows_are(
    seed: int, configure: Configure, train: Train, sampled: list[TrainingRow], export: Export
) -> None:
    """Half of the rows are a stale group: in two of these orders the first minibatch has no other."""
    rows = []
    for row in sampled:
        version, off = (3, 1.0) if row.row_index < 5 else (2, 0.0)
        versions = [version if trained else -1 for trained in row.loss_mask]
        logprobs = [lp - off * trained for lp, trained in zip(row.logprobs, row.loss_mask, strict=True)]
        changes = {"group_id": f"gr-{version}", "weight_versions": versions, "logprobs": logprobs}
        rows.append(row.model_copy(update=changes))
    config = configure(rows=export(rows), proximal="behaviour", policy_version=3, seed=seed)
    with pytest.raises(Disagreement, match="disagree by 1 nats"):
        train(config)
    assert not config.output.exists()


def test_a_run_without_on_policy_rows_says_that_agreement_is_not_measured(
    configure: Configure, train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    output = train(configure(proximal="behaviour", policy_version=4))
    assert json.loads((output / folder.SUMMARY).read_text())["agreement"] is None
    assert "agreement with the engine is not measured: no row was sampled by version 4" in capsys.readouterr().err


def test_agreement_is_measured_on_a_bounded_number_of_rows_from_first_to_last(
    configure: Configure, sampled: list[TrainingRow]
) -> None:
    rows = list(loading.load(configure())) * 20
    found = agreement.sample(rows, configure())
    assert (found[0], found[-1], len(set(found))) == (0, 199, agreement.SAMPLE)
    assert agreement.sample(rows[:3], configure()) == [0, 1, 2]
    assert agreement.sample(rows, configure(policy_version=4)) == []


def test_a_step_whose_loss_is_not_finite_is_skipped_and_its_rows_are_named(
    configure: Configure, train: Train, sampled: list[TrainingRow], export: Export
) -> None:
    broken = [row.model_copy(update={"advantage": 3e38}) if row.row_index == 4 else row for row in sampled]
    config = configure(rows=export(broken))
    summary = json.loads((train(config) / folder.SUMMARY).read_text())
    (skipped,) = [entry for entry in logged(config) if "skipped" in entry]
    assert "ep-4#4" in skipped["skipped"]
    ledger = summary["ledger"]
    assert ledger["skipped"] > 0 < ledger["trained"] == summary["tokens_trained"]
    assert ledger["skipped"] + ledger["trained"] == ledger["rows"] == sum(sum(row.loss_mask) for row in sampled)


def test_more_skipped_steps_than_allowed_stop_the_run(
    configure: Configure, train: Train, sampled: list[TrainingRow], export: Export
) -> None:
    broken = [row.model_copy(update={"advantage": 3e38}) if row.row_index == 4 else row for row in sampled]
    config = configure(rows=export(broken), max_skipped_steps=0)
    with pytest.raises(NotFinite, match=r"ep-4#4.*max_skipped_steps is 0"):
        train(config)
    assert not config.output.exists()


def test_a_run_on_other_tokens_than_the_training_sets_ledger_has_does_not_start(
    configure: Configure, train: Train, sampled: list[TrainingRow]
) -> None:
    tokens = sum(sum(row.loss_mask) for row in sampled)
    with pytest.raises(LedgerGap, match=rf"holds {tokens} tokens to train.*has {tokens + 1}"):
        train(configure(trained_tokens=tokens + 1))
    summary = json.loads((train(configure(trained_tokens=tokens, epochs=2, max_steps=3)) / folder.SUMMARY).read_text())
    ledger = summary["ledger"]
    assert ledger["trained"] + ledger["not_reached"] == 2 * tokens
    assert ledger["not_reached"] > 0


def test_a_token_that_was_not_counted_stops_the_export(
    configure: Configure, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tasks.training import run

    def forgetful(*arguments: object) -> dict[str, float]:
        found = accumulate(*arguments)
        return found | {"tokens": found["tokens"] - 1}

    accumulate = run.accumulate
    monkeypatch.setattr(run, "accumulate", forgetful)
    config = configure()
    with pytest.raises(LedgerGap, match="has a gap of 2"):
        train(config)
    assert not config.output.exists()


def test_a_step_reports_histograms_rewards_by_kind_and_groups(configure: Configure, train: Train) -> None:
    config = configure()
    train(config)
    look, _, *steps = logged(config)
    assert (look["rows"], look["groups"], look["groups_without_signal"]) == (10, 1, 0)
    for entry in steps:
        assert sum(entry["histogram/log_ratio"]) == sum(entry["histogram/kl"]) == entry["tokens_trained"]
        assert 0 <= entry["reward/search"] <= 1
    (group,) = json.loads((config.work_folder / "groups.json").read_text())
    assert (group["group"], group["rows"], group["reward"]) == ("gr-1", 10, 0.5)
    assert (group["advantage_low"], group["advantage_high"]) == (-1, 1)


def test_the_output_is_a_whole_model_folder(configure: Configure, train: Train, model_folder: Path) -> None:
    output = train(configure())
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "LICENSE"):
        assert (output / name).read_bytes() == (model_folder / name).read_bytes()
    assert folder.done(output)["weights_digest"] == folder.weights_digest(output) != folder.weights_digest(model_folder)
    assert AutoTokenizer.from_pretrained(output).chat_template == "{{ messages }}"
    probes = json.loads((output / folder.PROBE).read_text())
    model = AutoModelForCausalLM.from_pretrained(output, dtype=torch.float32)
    for probe in probes:
        ids = torch.tensor(probe["token_ids"])
        with torch.no_grad():
            every = torch.log_softmax(model(ids[None]).logits[0, :-1], -1)
        torch.testing.assert_close(
            every.gather(1, ids[1:, None])[:, 0], torch.tensor(probe["logprobs"]), rtol=0, atol=1e-4
        )
        assert probe["logprobs"] != probe["previous_logprobs"]


def test_a_finished_run_is_repeated_as_nothing_and_never_replaced(configure: Configure, train: Train) -> None:
    config = configure()
    written = (train(config) / "model.safetensors").stat().st_mtime_ns
    assert (train(config) / "model.safetensors").stat().st_mtime_ns == written
    with pytest.raises(TrainingError, match="never replaced"):
        train(config.model_copy(update={"learning_rate": 0.5}))


def test_a_model_folder_without_tokenizer_is_refused(tmp_path: Path, model_folder: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((model_folder / name).read_bytes())
    with pytest.raises(TrainingError, match="lacks a tokenizer"):
        folder.check_model(tmp_path)


@pytest.mark.parametrize(("name", "left"), [("model.safetensors", 500), ("model.safetensors", -8), ("config.json", 20)])
def test_a_model_whose_file_is_cut_off_is_refused_by_its_name(
    name: str, left: int, tmp_path: Path, model_folder: Path
) -> None:
    cut = shutil.copytree(model_folder, tmp_path / "cut")
    folder.check_model(cut)
    (cut / name).write_bytes((cut / name).read_bytes()[:left])
    with pytest.raises(TrainingError, match=f"{name} is broken or cut off"):
        folder.check_model(cut)


def test_a_crash_while_writing_leaves_no_folder(tmp_path: Path) -> None:
    target = tmp_path / "model"
    with pytest.raises(RuntimeError), folder.appearing(target, {}) as partial:
        (partial / "half.safetensors").write_text("half")
        raise RuntimeError
    assert not target.exists()
    with folder.appearing(target, {"run": "r"}) as partial:
        (partial / "whole.safetensors").write_text("whole")
    assert sorted(file.name for file in target.iterdir()) == ["DONE", "whole.safetensors"]
    assert folder.done(target)["run"] == "r"


def test_a_work_folder_takes_one_run_at_a_time_and_only_its_own_checkpoints(configure: Configure, train: Train) -> None:
    config = configure()
    config.work_folder.mkdir()
    with (config.work_folder / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.write("4711")
        held.flush()
        with pytest.raises(TrainingError, match="process 4711 already trains"):
            train(config)
    with folder.appearing(config.work_folder / "checkpoints" / "step-00000001", {"run": "another"}):
        pass
    with pytest.raises(TrainingError, match="checkpoints of another run"):
        train(config)


def test_ranks_must_be_as_configured(configure: Configure, train: Train) -> None:
    with pytest.raises(TrainingError, match=r"ranks=2, torchrun started 1"):
        train(configure(ranks=2))
