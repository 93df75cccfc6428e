"""The policy: a Hugging Face causal language model over packed rows, whole or with adapters, spread over the ranks."""

import shutil

import torch
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.modeling_utils import PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from tasks.training.config import TrainConfig
from tasks.training.errors import TrainingError
from tasks.training.model import attention, critic, lora, scoring, sharding
from tasks.training.ranks import Ranks


def load(config: TrainConfig, ranks: Ranks) -> PreTrainedModel:
    """Loads float32 master weights and shards them (see `sharding.spread`)."""
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        config.model, dtype=torch.float32, attn_implementation=attention.NAME, local_files_only=True
    )
    _refuse_recurrence(model)
    scoring.install(model)
    model.train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # dropout would make the trainer another policy than the engine
    if config.lora:
        lora.inject(model, config.lora)
    if "critic" in config.objective.needs:
        critic.install(model, config.model)
    if config.activation_checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    if config.compile:
        _compile(model)
    sharding.spread(model, ranks)
    return model


def _compile(model: PreTrainedModel) -> None:
    if not torch.cuda.is_available() and not any(shutil.which(name) for name in ("g++", "clang++", "c++")):
        raise TrainingError("compile=true needs a C++ compiler on CPU: install g++, or set compile to false")
    for block in sharding.blocks(model):
        block.compile(dynamic=True)


def _refuse_recurrence(model: PreTrainedModel) -> None:
    if getattr(model, "_is_stateful", False):
        raise TrainingError(f"{type(model).__name__} keeps state between tokens, which would leak between packed rows")


disable_progress_bar()  # type: ignore[no-untyped-call]
