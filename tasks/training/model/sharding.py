"""How a model is spread over ranks: a mesh of data x tensor, FSDP2 along the first, tensor parallel along the second."""

import re
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from transformers.modeling_utils import PreTrainedModel

from tasks.training.errors import TrainingError
from tasks.training.ranks import Ranks

GATHERED_BYTES = 1 << 30  # a smaller model stays gathered for a whole step: communication costs more than its memory
HEADS = 2  # dimension of the heads in [1, tokens, heads, head size], where a norm of queries or keys sees them


def spread(model: PreTrainedModel, ranks: Ranks) -> None:
    """Shards the model in place: one FSDP group per decoder layer and one for the rest.

    On CUDA the forward pass runs in bfloat16 and gradients are reduced in float32; on CPU everything is float32.
    Neighbouring ranks share a tensor-parallel group, so that its traffic stays inside a node.
    """
    mesh = init_device_mesh(ranks.device.type, (ranks.shards, ranks.tensor), mesh_dim_names=("data", "tensor"))
    if ranks.tensor > 1:
        _split_matrices(model, mesh["tensor"])
    on_gpu = ranks.device.type == "cuda"
    options: dict[str, Any] = {
        "mesh": mesh["data"],
        "mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32) if on_gpu else MixedPrecisionPolicy(),
        "reshard_after_forward": not _stays_gathered(model),
    }
    for block in blocks(model):
        fully_shard(block, **options)
    fully_shard(model, **options)


def blocks(model: PreTrainedModel) -> list[nn.Module]:
    """The decoder layers."""
    kinds = set(model._no_split_modules or ())
    return [module for module in model.modules() if type(module).__name__ in kinds]


def set_last(model: nn.Module, last: bool) -> None:
    """Tells FSDP whether the next micro-batch ends the step: only then are a small model's gradients reduced."""
    if isinstance(model, FSDPModule) and _stays_gathered(model):
        model.set_requires_gradient_sync(last)
        model.set_reshard_after_backward(last)


def _stays_gathered(model: nn.Module) -> bool:
    return sum(p.numel() * p.element_size() for p in model.parameters()) <= GATHERED_BYTES


def _split_matrices(model: PreTrainedModel, mesh: DeviceMesh) -> None:
    """Tensor parallelism (Megatron-LM, arXiv 1909.08053) by the plan that Transformers has for the model."""
    name, size = type(model).__name__, mesh.size()
    plan: dict[str, str] = dict(model.tp_plan or {})
    if not any("layers." in rule for rule in plan):
        raise TrainingError(f"Transformers has no tensor-parallel plan for {name}: set tensor_parallel=1")
    about = model.config.get_text_config()
    heads = {kind: getattr(about, kind) for kind in ("num_attention_heads", "num_key_value_heads")}
    uneven = {kind: count for kind, count in heads.items() if count % size}
    if uneven:
        said = " and ".join(f"{kind}={count}" for kind, count in uneven.items())
        raise TrainingError(f"{name} has {said}, which tensor_parallel={size} does not divide: choose a divisor")
    styles: dict[str, ParallelStyle] = {}
    for rule, style in plan.items():
        if style == "embedding_rowwise":
            continue  # stays whole on every rank: it may be tied to the head, and FSDP shards it
        if style == "colwise_gather_output" and about.tie_word_embeddings:
            continue
        pattern = re.compile(re.escape(rule).replace(r"\*", r"\d+"))
        for path, module in model.named_modules():
            if pattern.fullmatch(path):
                styles[path] = _style(style, path, module, about, size)
    parallelize_module(model, mesh, styles)


def _style(style: str, path: str, module: nn.Module, about: Any, size: int) -> ParallelStyle:
    head = getattr(about, "head_dim", None) or about.hidden_size // about.num_attention_heads
    if isinstance(module, nn.Linear):
        split = module.in_features if style == "rowwise" else module.out_features
        if split % size:
            raise TrainingError(f"{path} has {split} columns, which tensor_parallel={size} does not divide")
        if style in ("colwise", "rowwise"):
            return ColwiseParallel() if style == "colwise" else RowwiseParallel()
        if style == "colwise_gather_output":
            return ColwiseParallel(output_layouts=Replicate())
    if style == "replicated_with_grad_allreduce" and [p.shape for p in module.parameters()] == [torch.Size([head])]:
        return SequenceParallel(
            sequence_dim=HEADS, use_local_output=True
        )  # one norm for all heads, of which we see some
    raise TrainingError(f"tensor_parallel: {path} would be split as {style}, which is not done here: set it to 1")
