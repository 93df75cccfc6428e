"""The packed forward pass is the ordinary one, row by row."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM, MistralConfig, MistralForCausalLM

from tasks.training import data
from tasks.training import model as policy
from tasks.training.batch import batch_of
from tasks.training.config import TrainConfig
from tasks.training.data import Row
from tasks.training.ranks import Ranks, joined

Configure = Callable[..., TrainConfig]


@pytest.fixture
def alone(configure: Configure) -> Iterator[tuple[TrainConfig, Ranks]]:
    config = configure()
    with joined(config) as ranks:
        yield config, ranks


def reference(model: torch.nn.Module, row: Row) -> torch.Tensor:
    """Log-probs of the row's trained tokens, computed on the row alone with every logit."""
    every = torch.log_softmax(model(torch.from_numpy(row.ids)[None]).logits[0], -1)
    return every[torch.from_numpy(row.positions), torch.from_numpy(row.targets)]


def gradients(model: torch.nn.Module) -> list[torch.Tensor]:
    return [p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad for p in model.parameters()]


@pytest.mark.parametrize("checkpointing", [False, True])
def test_packing_changes_neither_logprobs_nor_gradients(alone: tuple[TrainConfig, Ranks], checkpointing: bool) -> None:
    config, ranks = alone
    rows = data.load(config)
    plain = AutoModelForCausalLM.from_pretrained(config.model, dtype=torch.float32)
    expected = [reference(plain, row) for row in rows]
    sum(part.sum() for part in expected).backward()
    model = policy.load(config.model_copy(update={"activation_checkpointing": checkpointing}), ranks)
    found, entropy = policy.logprobs(model, batch_of(list(range(10)), rows, ranks.device))
    found.sum().backward()
    torch.testing.assert_close(found, torch.cat(expected), rtol=0, atol=1e-5)
    assert (entropy > 0).all()
    for one, other in zip(gradients(model), gradients(plain), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_sliding_window_is_kept_inside_each_row(tmp_path: Path, alone: tuple[TrainConfig, Ranks]) -> None:
    config, ranks = alone
    shape = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": 5}
    torch.manual_seed(1)
    MistralForCausalLM(MistralConfig(**shape, **heads, initializer_range=0.3)).save_pretrained(tmp_path / "mistral")
    rows = data.load(config)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "mistral", dtype=torch.float32)
    model = policy.load(config.model_copy(update={"model": tmp_path / "mistral"}), ranks)
    with torch.no_grad():
        found, _ = policy.logprobs(model, batch_of([0, 1, 2], rows, ranks.device))
        torch.testing.assert_close(found, torch.cat([reference(plain, row) for row in rows[:3]]), rtol=0, atol=1e-5)


def test_temperature_divides_the_logits(alone: tuple[TrainConfig, Ranks]) -> None:
    config, ranks = alone
    rows = data.load(config)
    plain = AutoModelForCausalLM.from_pretrained(config.model, dtype=torch.float32)
    with torch.no_grad():
        logits = plain(torch.from_numpy(rows[0].ids)[None]).logits[0] / 0.7
        expected = torch.log_softmax(logits, -1)[torch.from_numpy(rows[0].positions), torch.from_numpy(rows[0].targets)]
        found, _ = policy.logprobs(policy.load(config, ranks), batch_of([0], rows, ranks.device), 0.7)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_an_idle_pass_has_gradients_of_zero(alone: tuple[TrainConfig, Ranks]) -> None:
    config, ranks = alone
    model = policy.load(config, ranks)
    found, _ = policy.logprobs(model, batch_of([], [], ranks.device))
    found.sum().backward()
    assert found.shape == (0,)
    assert not any(gradient.any() for gradient in gradients(model))
