"""The policy: a Hugging Face causal language model, sharded with FSDP2, over packed rows."""

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from transformers import AutoModelForCausalLM
from transformers.modeling_utils import PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from tasks.training import attention, scoring
from tasks.training.config import TrainConfig
from tasks.training.errors import TrainingError
from tasks.training.ranks import Ranks

GATHERED_BYTES = 1 << 30  # a smaller model stays gathered for a whole step: communication costs more than its memory


def load(config: TrainConfig, ranks: Ranks) -> PreTrainedModel:
    """Loads float32 master weights and shards them: one group per decoder layer and one for the rest.

    On CUDA the forward pass runs in bfloat16 and gradients are reduced in float32; on CPU everything is float32.
    """
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        config.model, dtype=torch.float32, attn_implementation=attention.NAME, local_files_only=True
    )
    _refuse_recurrence(model)
    scoring.install(model)
    model.train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # dropout would make the trainer another policy than the engine
    if config.activation_checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    on_gpu = ranks.device.type == "cuda"
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if on_gpu else MixedPrecisionPolicy()
    mesh = init_device_mesh(ranks.device.type, (ranks.world,))
    options: dict[str, Any] = {"mesh": mesh, "mp_policy": policy, "reshard_after_forward": not stays_gathered(model)}
    blocks = set(model._no_split_modules or ())
    for module in [m for m in model.modules() if type(m).__name__ in blocks]:
        fully_shard(module, **options)
    fully_shard(model, **options)
    return model


def stays_gathered(model: nn.Module) -> bool:
    return sum(p.numel() * p.element_size() for p in model.parameters()) <= GATHERED_BYTES


def set_last(model: nn.Module, last: bool) -> None:
    """Tells FSDP whether the next micro-batch ends the step: only then are a small model's gradients reduced."""
    if isinstance(model, FSDPModule) and stays_gathered(model):
        model.set_requires_gradient_sync(last)
        model.set_reshard_after_backward(last)


def _refuse_recurrence(model: PreTrainedModel) -> None:
    if getattr(model, "_is_stateful", False):
        raise TrainingError(f"{type(model).__name__} keeps state between tokens, which would leak between packed rows")


disable_progress_bar()  # type: ignore[no-untyped-call]
