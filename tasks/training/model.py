"""The policy: a Hugging Face causal language model, sharded with FSDP2, over packed rows."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from transformers import AutoModelForCausalLM
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from tasks.training.batch import Batch
from tasks.training.config import TrainConfig
from tasks.training.errors import TrainingError
from tasks.training.ranks import Ranks

GATHERED_BYTES = 1 << 30  # a smaller model stays gathered for a whole step: communication costs more than its memory


def load(config: TrainConfig, ranks: Ranks) -> PreTrainedModel:
    """Loads float32 master weights and shards them: one group per decoder layer and one for the rest.

    On CUDA the forward pass runs in bfloat16 and gradients are reduced in float32; on CPU everything is float32.
    """
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        config.model, dtype=torch.float32, attn_implementation="packed_rows", local_files_only=True
    )
    _refuse_recurrence(model)
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


def logprobs(model: nn.Module, batch: Batch, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """Log-probs of the trained tokens and the entropy there (no gradient), both [trained], float32, in nats.

    Logits exist only at positions that predict a trained token.
    """
    output = model(
        input_ids=batch.input_ids,
        position_ids=batch.position_ids,
        documents=batch.documents,
        logits_to_keep=batch.positions,
        use_cache=False,
    )
    logits = output.logits[0].float()
    every = F.log_softmax(logits if temperature == 1.0 else logits / temperature, dim=-1)
    with torch.no_grad():
        entropy = -(every.exp() * every).sum(-1)
    return every.gather(-1, batch.targets[:, None]).squeeze(-1), entropy


def _packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    documents: list[int],
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Causal attention inside each document; query [1, heads, tokens, head size] -> [1, tokens, heads, head size].

    One fused call per document: on CPU four times as quick as a block-diagonal mask over the packed sequence, and rows
    cannot reach each other. `documents` is required, so a model that does not pass it on fails instead of mixing rows.
    """
    if softcap is not None:
        raise TrainingError("this model caps attention scores (softcap), which the packed attention does not do")
    parts = [
        F.scaled_dot_product_attention(
            *(q, k, v),
            **_visibility(q.shape[2], sliding_window, q.device),
            scale=scaling,
            enable_gqa=q.shape[1] != k.shape[1],
        )
        for q, k, v in zip(*(torch.split(tensor, documents, dim=2) for tensor in (query, key, value)), strict=True)
    ]
    return torch.cat(parts, dim=2).transpose(1, 2).contiguous(), None


def _visibility(length: int, window: int | None, device: torch.device) -> dict[str, Any]:
    if window is None or length <= window:
        return {"is_causal": True}
    distance = torch.arange(length, device=device)[:, None] - torch.arange(length, device=device)[None]
    return {"attn_mask": (distance >= 0) & (distance < window)}


def _refuse_recurrence(model: PreTrainedModel) -> None:
    if getattr(model, "_is_stateful", False):
        raise TrainingError(f"{type(model).__name__} keeps state between tokens, which would leak between packed rows")


disable_progress_bar()  # type: ignore[no-untyped-call]
ALL_ATTENTION_FUNCTIONS.register("packed_rows", _packed_attention)
