"""AdamW with warmup, and gradient clipping over all ranks."""

import math

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from tasks.training.config import TrainConfig


def adamw(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """Decoupled weight decay (arXiv 1711.05101) on matrices only; norms and biases are left alone."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [g for g in groups if g["params"]],
        lr=config.learning_rate,
        betas=(0.9, 0.95),
        fused=True,
    )


def learning_rate(config: TrainConfig, step: int, steps: int) -> float:
    """The rate of step `step` (from 0) of `steps`: linear warmup, then constant or a cosine down to a tenth."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.learning_rate
    done = (step - config.warmup_steps) / max(1, steps - config.warmup_steps)
    return config.learning_rate * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done)))


def update(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """One optimiser step at `rate`; the gradients are gone afterwards."""
    for group in optimiser.param_groups:
        group["lr"] = rate
    optimiser.step()
    optimiser.zero_grad()


def clip(model: nn.Module, limit: float) -> float:
    """Clips the gradient's 2-norm to `limit` and returns the norm before, over all ranks."""
    by_mesh: dict[DeviceMesh | None, list[nn.Parameter]] = {}  # one call of PyTorch's functions takes one mesh
    for parameter in model.parameters():
        if parameter.grad is not None:
            mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
            by_mesh.setdefault(mesh, []).append(parameter)
    norms = [_whole(get_total_norm([p.grad for p in given if p.grad is not None])) for given in by_mesh.values()]
    norm = torch.linalg.vector_norm(torch.stack(norms)) if len(norms) > 1 else norms[0]
    for given in by_mesh.values():
        clip_grads_with_norm_(given, limit, norm)
    return norm.item()


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
