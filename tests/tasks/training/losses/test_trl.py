"""Losses, corrections, advantages and log-probs against TRL's own trainers, on the same numbers: values and gradients.

What differs by definition is in docs/objectives.md.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from datasets import Dataset
from torch import Tensor
from transformers import AutoTokenizer
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer
from trl.trainer.utils import entropy_from_logits, selective_log_softmax

from lakehouse.selection.estimators import estimated
from tasks.training.config import TrainConfig
from tasks.training.data.batch import batch_of
from tasks.training.data.mapped import Row
from tasks.training.losses import compute
from tasks.training.losses.base import LossInputs
from tasks.training.losses.correction import correct
from tasks.training.model import policy, scoring
from tasks.training.ranks import joined
from tasks.training.step import aggregation

GROUP, LONGEST = 4, 12
REWARDS = [1.0, 0.0, 0.5, 1.0, 0.0, 0.0, 1.0, 0.2]
TIGHT = {"rtol": 1e-6, "atol": 1e-9}
Trainer = Callable[..., Any]


@dataclass
class Given:
    """Two groups of four completions, padded to [episodes, tokens] as TRL has them; in the middle there are a tool's tokens."""

    completion: Tensor  # 1 where there is a token
    trained: Tensor  # 1 where the policy sampled it
    logprobs: Tensor
    proximal: Tensor
    behaviour: Tensor
    reference: Tensor
    entropy: Tensor
    advantages: Tensor  # [episodes]


@pytest.fixture
def given() -> Given:
    rng = np.random.default_rng(23)
    shape = (len(REWARDS), LONGEST)
    lengths = rng.integers(3, LONGEST + 1, len(REWARDS))
    lengths[0] = LONGEST
    completion = (np.arange(LONGEST) < lengths[:, None]).astype(int)
    trained = completion * (np.arange(LONGEST) != 1)
    behaviour = rng.normal(-2, 1, shape)
    proximal = behaviour + rng.normal(0, 0.3, shape)
    logprobs = proximal + rng.normal(0, 0.3, shape)
    tensors = [
        torch.from_numpy(one)
        for one in (completion, trained, logprobs, proximal, behaviour, rng.normal(-2, 1, shape), rng.random(shape))
    ]
    made = Given(*tensors, torch.tensor([0.9, -1.1, 0.2, 0.7, -0.6, -0.3, 1.4, -0.5], dtype=torch.float64))
    made.logprobs.requires_grad_()
    made.entropy.requires_grad_()
    return made


@pytest.fixture(scope="module")
def build(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """A trainer of TRL on the tests' model, with settings of its own, in the state of a training step."""
    folder = str(tmp_path_factory.mktemp("trl"))
    quiet = {
        "use_cpu": True,
        "bf16": False,
        "activation_checkpointing": False,
        "report_to": "none",
        "disable_tqdm": True,
    }
    rewarded = {"reward_funcs": lambda completions, **_: REWARDS[: len(completions)]}
    sampling = {
        "num_generations": GROUP, "max_completion_length": LONGEST, "per_device_train_batch_size": len(REWARDS),
    }  # fmt: skip

    def make(kind: type, **settings: object) -> Any:
        tokenizer = AutoTokenizer.from_pretrained(model_folder)
        words = {"prompt": ["2 3"] * 8, "chosen": ["4"] * 8, "rejected": ["5"] * 8}
        if kind is DPOTrainer:
            options, more = DPOConfig(folder, **quiet, precompute_ref_log_probs=True, **settings), {}
        else:
            config, more, words = (GRPOConfig if kind is GRPOTrainer else RLOOConfig), rewarded, {"prompt": ["2"] * 8}
            options = config(folder, **quiet, **sampling, **settings)
        trainer = kind(
            str(model_folder), args=options, processing_class=tokenizer, train_dataset=Dataset.from_dict(words), **more
        )
        trainer.model.train()
        trainer.current_gradient_accumulation_steps = 1  # set by its loop
        return trainer

    return make


def theirs(trainer: Any, given: Given, **inputs: Tensor) -> Tensor:
    """TRL's loss where its model says the given log-probs."""
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (given.logprobs, given.entropy, None)
    ones = torch.ones(len(REWARDS), 1, dtype=torch.long)
    known = {
        "prompt_ids": ones, "prompt_mask": ones, "completion_ids": given.completion, "completion_mask": given.completion,
        "tool_mask": given.trained, "advantages": given.advantages, "old_per_token_logps": given.proximal,
        "ref_per_token_logps": given.reference, "num_items_in_batch": given.trained.sum(),
    }  # fmt: skip
    loss: Tensor = trainer._compute_loss(trainer.model, known | inputs)
    return loss


def ours(objective: dict[str, Any], given: Given, **settings: Any) -> Tensor:
    """Our loss of the step, as `step.passes` puts it together, of the trained tokens alone."""
    told = {"model": "m", "rows": "r.parquet", "output": "o", "learning_rate": 1, "objective": objective}
    told |= {"reference": "ref"} if "kl" in settings else {}
    config = TrainConfig.model_validate(told | {"correction": None} | settings)
    mask = given.trained.bool()
    counts = given.trained.sum(1).tolist()
    zeros = [np.zeros(count, np.float32) for count in counts]
    rows = [
        Row(str(i), np.zeros(n + 1, np.int64), np.arange(n), zero, zero, 1, episode=str(i), group=str(i // 2))
        for i, (n, zero) in enumerate(zip(counts, zeros, strict=True))
    ]
    weighing = aggregation.weighing(rows, config)
    numbers = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    proximal, behaviour = given.proximal[mask], given.behaviour[mask]
    inputs = LossInputs(
        logprobs=given.logprobs[mask],
        proximal=proximal,
        behaviour=behaviour,
        advantages=given.advantages[numbers],
        sequences=numbers,
        weights=torch.tensor(weighing.of_token, dtype=torch.float64)[numbers],
        means=torch.tensor(weighing.of_penalty, dtype=torch.float64)[numbers],
        importance=correct(proximal, behaviour, config.correction, numbers)[0],
        reference=given.reference[mask],
        pairs=numbers // 2,
    )
    return compute(inputs, given.entropy[mask], config).total / weighing.normaliser(range(len(rows)))


def assert_same(given: Given, one: Tensor, other: Tensor) -> None:
    """Value, and gradient at every log-prob and entropy."""
    torch.testing.assert_close(one, other, **TIGHT)
    at = [given.logprobs, given.entropy]
    found, expected = (torch.autograd.grad(loss, at, materialize_grads=True) for loss in (one, other))
    for mine, its in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, its, **TIGHT)
    assert expected[0][given.trained.bool()].count_nonzero() > 10


LOSSES = {
    "grpo": ({"name": "grpo"}, {"loss_type": "grpo"}),
    "grpo over tokens": ({"name": "grpo", "aggregation": "token"}, {"loss_type": "bnpo"}),
    "dr_grpo": ({"name": "dr_grpo", "budget": LONGEST}, {"loss_type": "dr_grpo"}),
    "dapo": ({"name": "dapo"}, {"loss_type": "dapo", "epsilon_high": 0.28}),
    "cispo": ({"name": "cispo", "ratio_high": 1.2}, {"loss_type": "cispo", "epsilon_high": 1.2}),
    "sapo": ({"name": "sapo"}, {"loss_type": "sapo"}),
    "gspo": (
        {"name": "gspo", "clip_low": 0.05, "clip_high": 0.1},
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.05, "epsilon_high": 0.1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_a_policy_loss_is_trls(name: str, given: Given, build: Trainer) -> None:
    objective, settings = LOSSES[name]
    assert_same(given, ours(objective, given), theirs(build(GRPOTrainer, beta=0.0, **settings), given))


@pytest.mark.parametrize(("name", "unbiased"), [("grpo", False), ("gspo", False), ("grpo", True), ("dapo", True)])
def test_a_loss_with_kl_to_a_reference_is_trls(name: str, unbiased: bool, given: Given, build: Trainer) -> None:
    objective, settings = LOSSES[name]
    trainer = build(GRPOTrainer, use_bias_correction_kl=unbiased, **settings)
    trainer.beta = 0.05  # set here, so that no second model is loaded for what is given
    kl = {"estimator": "k3", "coefficient": 0.05, "unbiased": unbiased}
    assert_same(given, ours(objective, given, kl=kl), theirs(trainer, given))


@pytest.mark.parametrize("name", ["grpo over tokens", "dapo"])
def test_a_loss_with_an_entropy_bonus_is_trls(name: str, given: Given, build: Trainer) -> None:
    objective, settings = LOSSES[name]
    trainer = build(GRPOTrainer, beta=0.0, entropy_coef=0.02, **settings)
    assert_same(given, ours(objective, given, entropy_bonus=0.02), theirs(trainer, given))


def test_rloo_is_trls(given: Given, build: Trainer) -> None:
    given.completion = given.trained  # it knows no tools
    old = (given.proximal * given.trained).sum(1)
    trainer = build(RLOOTrainer, beta=0.0)
    assert_same(given, ours({"name": "rloo"}, given), theirs(trainer, given, old_logps=old))


CORRECTIONS = {
    "token_truncate": {"name": "truncate", "high": 1.3},
    "token_mask": {"name": "mask", "low": 0.8, "high": 1.3},
    "sequence_truncate": {"name": "truncate", "level": "sequence", "high": 1.3},
    "sequence_mask": {"name": "mask", "level": "sequence", "low": 0.6, "high": 1.6},
}


@pytest.mark.parametrize("mode", CORRECTIONS)
def test_advantages_and_the_correction_for_the_sampler_are_trls_from_rewards_on(
    mode: str, given: Given, build: Trainer
) -> None:
    correction = CORRECTIONS[mode]
    trainer = build(
        GRPOTrainer,
        loss_type="grpo",
        beta=0.0,
        vllm_importance_sampling_mode=mode,
        vllm_importance_sampling_clip_min=correction.get("low"),
        vllm_importance_sampling_clip_max=correction["high"],
    )
    trainer.use_vllm = True  # without a server: what it would have sampled is handed over
    lengths = given.completion.sum(1).tolist()

    def sampled(_: object) -> tuple[Any, ...]:
        def cut(values: Tensor) -> list[Any]:
            return [row[:length].tolist() for row, length in zip(values, lengths, strict=True)]

        completions = ["text"] * len(lengths)
        ids = cut(given.completion + 1)
        return [[2]] * len(lengths), ids, cut(given.trained), completions, cut(given.behaviour), {}, None, None

    trainer._generate = sampled
    given.behaviour = given.behaviour.float().double()  # as a list of it is read back by TRL
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (given.proximal, given.entropy, None)
    inputs = trainer._generate_and_score_completions([{"prompt": "2"}] * len(lengths))
    found = estimated(
        pl.DataFrame({"group_id": [i // GROUP for i in range(len(REWARDS))], "shaped": REWARDS, "keep": True,
                      "reason": None, "position": range(len(REWARDS))}), "grpo",
    )["advantage"]  # fmt: skip
    torch.testing.assert_close(
        inputs["advantages"].double(), torch.tensor(found.to_list()).double(), rtol=1e-6, atol=1e-6
    )
    given.advantages = inputs["advantages"]
    ratio = inputs["importance_sampling_ratio"]
    assert 3 < ((ratio == 0) | (ratio == correction["high"])).expand_as(given.trained)[given.trained.bool()].sum() < 60
    assert_same(given, ours({"name": "grpo"}, given, correction=correction), theirs(trainer, given, **inputs))


def test_dpo_is_trls(given: Given, build: Trainer) -> None:
    """Even episodes are the better ones of their pairs."""
    order = [*range(0, 8, 2), *range(1, 8, 2)]
    given.advantages = torch.tensor([1.0, -1.0] * 4, dtype=torch.float64)
    trainer = build(DPOTrainer, beta=0.3)
    whole = torch.nn.functional.pad(given.trained[order], (1, 0))
    masked = (given.logprobs * given.trained)[order]

    told = dict.fromkeys(("entropy", "mean_logits"), given.entropy.detach()) | {"is_top1": given.trained.bool()}
    reference = (given.reference * given.trained).sum(1)
    inputs = {"input_ids": whole, "attention_mask": whole, "completion_mask": whole}
    inputs |= {"ref_chosen_logps": reference[::2], "ref_rejected_logps": reference[1::2]}
    loss = trainer._compute_loss(lambda **_: SimpleNamespace(log_probs=masked, **told), inputs, return_outputs=False)
    assert_same(given, ours({"name": "dpo", "beta": 0.3}, given), loss)


@pytest.fixture
def rows() -> Iterator[list[Row]]:
    """Rows of one group, which share a prompt."""
    rng = np.random.default_rng(3)
    prompt = rng.integers(2, 64, 9)
    ids = [np.concatenate([prompt, rng.integers(2, 64, length)]) for length in (5, 11, 8)]
    zeros = [np.zeros(len(one) - 9, np.float32) for one in ids]
    return [
        Row(str(i), one, np.arange(8, len(one) - 1), z, z, 1) for i, (one, z) in enumerate(zip(ids, zeros, strict=True))
    ]


def test_logprobs_entropies_and_their_gradients_are_trls(
    rows: list[Row], build: Trainer, configure: Callable[..., TrainConfig]
) -> None:
    trainer = build(GRPOTrainer, temperature=0.7, entropy_coef=0.1)
    longest = max(len(row.ids) for row in rows)
    ids = torch.stack([torch.from_numpy(np.pad(row.ids, (0, longest - len(row.ids)))) for row in rows])
    mask = torch.stack([(torch.arange(longest) < len(row.ids)).long() for row in rows])
    found = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, longest - 9, compute_entropy=True)
    at = mask[:, 9:].bool()
    expected = [one[at] for one in found[:2]]
    (expected[0].sum() + 0.3 * expected[1].square().sum()).backward()
    gradients = {name: p.grad for name, p in trainer.model.named_parameters()}

    config = configure()
    with joined(config) as ranks:
        model = policy.load(config, ranks)
        batch = batch_of([0, 1, 2], rows, ranks.device, 4)
        assert batch.unique_tokens < batch.tokens
        logprobs, entropy = scoring.logprobs(model, batch, 0.7)
        (logprobs.sum() + 0.3 * entropy.square().sum()).backward()
        for one, other in zip((logprobs, entropy), expected, strict=True):  # two ways of attention, in float32
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
        scale = max(float(one.abs().max()) for one in gradients.values())
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(
                parameter.grad.full_tensor() / scale, gradients[name] / scale, rtol=1e-5, atol=1e-5
            )


def test_of_the_same_logits_logprobs_entropies_and_gradients_are_those_of_trls_utilities(rows: list[Row]) -> None:
    batch = batch_of([0, 1, 2], rows, torch.device("cpu"), 4)
    generator = torch.Generator().manual_seed(4)
    logits = (3 * torch.randn(len(batch.scored), 64, generator=generator)).requires_grad_()

    class Model(torch.nn.Module):
        def forward(self, **_: object) -> SimpleNamespace:
            return SimpleNamespace(logits=logits[None])

    found = scoring.logprobs(Model(), batch, 0.7)
    at = logits[batch.positions]
    expected = selective_log_softmax(at, batch.targets, temperature=0.7), entropy_from_logits(at / 0.7)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
        gradients = [torch.autograd.grad(each.square().sum(), logits, retain_graph=True)[0] for each in (one, other)]
        torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-6)
