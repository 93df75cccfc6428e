"""Adapters: what is trained, what is saved, and that the merged model is the trained one."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tasks.training import folder
from tasks.training.config import TrainConfig
from tasks.training.errors import TrainingError
from tasks.training.model import lora

Configure = Callable[..., TrainConfig]
Train = Callable[[TrainConfig], Path]


def logprobs(model: torch.nn.Module, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        every = model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
    return every.gather(1, torch.tensor(ids)[1:, None])[:, 0]


def test_the_merged_model_and_the_adapter_are_the_trained_policy(
    configure: Configure, train: Train, model_folder: Path
) -> None:
    options = {"rank": 4, "alpha": 8, "target_modules": ["q_proj", "down_proj"]}
    config = configure(lora=options, learning_rate=0.02, epochs=2, checkpoint_every=1)
    output = train(config)
    before, after = (load_file(path / "model.safetensors") for path in (model_folder, output))
    assert before.keys() == after.keys()
    changed = {name.split(".")[-2] for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"q_proj", "down_proj"}
    merged = AutoModelForCausalLM.from_pretrained(output, dtype=torch.float32)
    base = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    adapted = PeftModel.from_pretrained(base, str(output / "adapter"))
    for probe in json.loads((output / folder.PROBE).read_text()):
        trained = torch.tensor(probe["logprobs"])
        torch.testing.assert_close(logprobs(merged, probe["token_ids"]), trained, rtol=0, atol=1e-4)
        torch.testing.assert_close(logprobs(adapted, probe["token_ids"]), trained, rtol=0, atol=1e-4)
        assert (trained - torch.tensor(probe["previous_logprobs"])).abs().max() > 1e-2
    assert (output / "config.json").read_bytes() == (model_folder / "config.json").read_bytes()


def test_a_merge_that_drifted_is_no_model(configure: Configure, train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    merge = lora.merge

    def in_half_precision(source: Path, output: Path) -> None:
        merge(source, output)
        model = AutoModelForCausalLM.from_pretrained(output, dtype=torch.bfloat16)
        model.float().save_pretrained(output)

    monkeypatch.setattr(lora, "merge", in_half_precision)
    config = configure(lora={"rank": 2})
    with pytest.raises(TrainingError, match="merged model is not the trained one"):
        train(config)
    assert not config.output.exists()


@pytest.mark.parametrize("name", ["lm_head", "embed_tokens"])
def test_an_adapter_of_a_tied_head_is_refused_before_a_step(configure: Configure, train: Train, name: str) -> None:
    config = configure(lora={"target_modules": ["q_proj", name]})
    with pytest.raises(TrainingError, match=rf"lora: .*{name} is tied to the other end"):
        train(config)
    assert not (config.work_folder / "metrics.jsonl").exists()


@pytest.mark.parametrize("names", [["q_proj", "nope"], ["nope"]])
def test_an_adapter_that_binds_no_module_is_refused(configure: Configure, train: Train, names: list[str]) -> None:
    with pytest.raises(TrainingError, match=r"lora: .*nope"):
        train(configure(lora={"target_modules": names}))
