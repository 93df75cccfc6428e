"""The packed forward pass is the ordinary one, row by row, whatever the rows share."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.tensor import DTensor
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tasks.training.config import TrainConfig
from tasks.training.data import loading
from tasks.training.data.batch import batch_of
from tasks.training.data.mapped import Row
from tasks.training.data.tree import tree_of
from tasks.training.errors import TrainingError
from tasks.training.model import policy, scoring
from tasks.training.model.attention import Way, visible
from tasks.training.ranks import Ranks, joined

Configure = Callable[..., TrainConfig]

SMALL: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "initializer_range": 0.3,
    "pad_token_id": None,
}
MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SMALL, tie_word_embeddings=True)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SMALL)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SMALL)),
    "one layer of two with a window": lambda: Qwen2ForCausalLM(
        Qwen2Config(**SMALL, use_sliding_window=True, sliding_window=5, max_window_layers=1)
    ),
    "a window in every layer": lambda: MistralForCausalLM(MistralConfig(**SMALL, sliding_window=5)),
    "scaled logits": lambda: GraniteForCausalLM(GraniteConfig(**SMALL, logits_scaling=3.0)),
}


@pytest.fixture
def alone(configure: Configure) -> Iterator[tuple[TrainConfig, Ranks]]:
    config = configure()
    with joined(config) as ranks:
        yield config, ranks


@pytest.fixture
def family() -> list[Row]:
    """A call tree: rows that part at three depths, one inside another, two alike, one that ends where others go on, and
    one of another tree. Every row trains tokens that others train too."""
    rng = np.random.default_rng(5)

    def some(length: int) -> list[int]:
        return rng.integers(2, 64, length).tolist()

    root, left, right = some(11), some(7), some(6)
    ids = [
        *(root + left + some(5), root + left + some(9), root + right + some(4), root + left + left),
        *(root + right, root + some(3), root + some(3), root, some(12)),
    ]
    return [row(name, one, rng) for name, one in enumerate([*ids, ids[1]])]


def row(name: int, ids: list[int], rng: np.random.Generator) -> Row:
    positions = np.sort(rng.choice(len(ids) - 1, (len(ids) - 1) * 2 // 3, replace=False))
    positions[-1] = len(ids) - 2
    values = rng.normal(size=(2, len(positions))).astype(np.float32)
    return Row(str(name), np.array(ids), positions, values[0], values[1], 1)


def reference(model: torch.nn.Module, row: Row) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probs of the row's trained tokens and the entropies there, computed on the row alone with every logit."""
    every = torch.log_softmax(model(torch.from_numpy(row.ids)[None]).logits[0], -1)
    at = every[torch.from_numpy(row.positions)]
    return every[torch.from_numpy(row.positions), torch.from_numpy(row.targets)], -(at.exp() * at).sum(-1)


def gradients(model: torch.nn.Module) -> list[torch.Tensor]:
    found = [p.grad for p in model.parameters() if p.grad is not None]
    return [one.full_tensor() if isinstance(one, DTensor) else one for one in found]


def loss(
    logprobs: torch.Tensor, entropy: torch.Tensor, behaviour: torch.Tensor, advantages: torch.Tensor
) -> torch.Tensor:
    """Not linear in the log-probs, and each term with its own row's behaviour and advantage."""
    ratio = (logprobs - 0.1 * behaviour).exp()
    return (ratio * advantages).sum() + 0.3 * entropy.sum()


@pytest.mark.parametrize(("checkpointing", "pieces"), [(False, "whole"), (True, "in pieces")])
@pytest.mark.parametrize("name", MODELS)
def test_shared_prefixes_change_no_logprob_no_loss_and_no_gradient(
    name: str,
    pieces: str,
    checkpointing: bool,
    tmp_path: Path,
    family: list[Row],
    alone: tuple[TrainConfig, Ranks],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, ranks = alone
    if pieces == "in pieces":  # logits of seven positions at a time, computed again in the backward pass
        monkeypatch.setattr(scoring, "KEPT_BYTES", 0)
        monkeypatch.setattr(scoring, "PIECE_BYTES", 4 * 64 * 7)
    torch.manual_seed(1)
    plain = MODELS[name]()
    plain.save_pretrained(tmp_path / "model")
    model = policy.load(
        config.model_copy(update={"model": tmp_path / "model", "activation_checkpointing": checkpointing}), ranks
    )
    assert getattr(model, "scores_in_pieces", False) == (name != "scaled logits")
    batch = batch_of(list(range(len(family))), family, ranks.device, shared=2)
    assert batch.unique_tokens < 0.6 * batch.tokens
    assert len(batch.scored) < len(batch.targets)

    apart = [reference(plain, one) for one in family]
    expected = [torch.cat(parts) for parts in zip(*apart, strict=True)]
    loss(*expected, batch.behaviour, batch.advantages).backward()
    found = scoring.logprobs(model, batch)
    total = loss(*found, batch.behaviour, batch.advantages)
    total.backward()

    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
    torch.testing.assert_close(total, loss(*expected, batch.behaviour, batch.advantages), rtol=1e-5, atol=1e-5)
    ours, theirs = gradients(model), gradients(plain)
    assert len(ours) == len(theirs) > 10
    scale = max(float(one.abs().max()) for one in theirs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5 * max(1.0, scale))


@pytest.mark.parametrize("name", ["llama", "one layer of two with a window"])
@pytest.mark.parametrize("way", ["dense", "flex"])
def test_every_way_of_attention_gives_the_same_logprobs(
    way: Way, name: str, tmp_path: Path, family: list[Row], alone: tuple[TrainConfig, Ranks]
) -> None:
    config, ranks = alone
    torch.manual_seed(1)
    MODELS[name]().save_pretrained(tmp_path / "model")
    model = policy.load(config.model_copy(update={"model": tmp_path / "model"}), ranks)
    batch = batch_of(list(range(len(family))), family, ranks.device, shared=2)
    with torch.no_grad():
        found, expected = (scoring.logprobs(model, batch, attention=one)[0] for one in (way, "segments"))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_the_tree_as_one_number_per_token_is_the_mask_of_ancestors(family: list[Row]) -> None:
    tree = tree_of([one.ids for one in family], 2)
    expected = torch.zeros(len(tree.ids), len(tree.ids), dtype=torch.bool)
    for places in tree.places:
        for depth, place in enumerate(places):
            expected[place, places[: depth + 1]] = True
    assert torch.equal(visible(tree, torch.device("cpu")).dense(None), expected)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_packing_changes_neither_logprobs_nor_gradients(alone: tuple[TrainConfig, Ranks], checkpointing: bool) -> None:
    config, ranks = alone
    rows = loading.load(config)
    plain = AutoModelForCausalLM.from_pretrained(config.model, dtype=torch.float32)
    expected = [reference(plain, row)[0] for row in rows]
    sum(part.sum() for part in expected).backward()
    model = policy.load(config.model_copy(update={"activation_checkpointing": checkpointing}), ranks)
    found, entropy = scoring.logprobs(model, batch_of(list(range(10)), rows, ranks.device))
    found.sum().backward()
    torch.testing.assert_close(found, torch.cat(expected), rtol=0, atol=1e-5)
    assert (entropy > 0).all()
    for one, other in zip(gradients(model), gradients(plain), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_temperature_divides_the_logits(alone: tuple[TrainConfig, Ranks]) -> None:
    config, ranks = alone
    rows = loading.load(config)
    positions, targets = torch.from_numpy(rows[0].positions), torch.from_numpy(rows[0].targets)
    plain = AutoModelForCausalLM.from_pretrained(config.model, dtype=torch.float32)
    logits = plain(torch.from_numpy(rows[0].ids)[None]).logits[0] / 0.7
    expected = torch.log_softmax(logits, -1)[positions, targets]
    expected.sum().backward()
    model = policy.load(config, ranks)
    found, _ = scoring.logprobs(model, batch_of([0], rows, ranks.device), 0.7)
    found.sum().backward()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    for one, other in zip(gradients(model), gradients(plain), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_model_that_caps_attention_scores_is_refused(tmp_path: Path, alone: tuple[TrainConfig, Ranks]) -> None:
    config, ranks = alone
    Gemma2ForCausalLM(Gemma2Config(**SMALL, attn_logit_softcapping=50.0)).save_pretrained(tmp_path / "gemma")
    model = policy.load(config.model_copy(update={"model": tmp_path / "gemma"}), ranks)
    with pytest.raises(TrainingError, match="caps attention scores"):
        scoring.logprobs(model, batch_of([0], loading.load(config), ranks.device))


def test_an_idle_pass_has_gradients_of_zero(alone: tuple[TrainConfig, Ranks]) -> None:
    config, ranks = alone
    model = policy.load(config, ranks)
    found, _ = scoring.logprobs(model, batch_of([], [], ranks.device))
    found.sum().backward()
    assert found.shape == (0,)
    assert not any(gradient.any() for gradient in gradients(model))
