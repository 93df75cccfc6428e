"""The value head of PPO: a linear layer over the policy's last hidden state, part of the model and of its checkpoint.

vLLM loads every safetensors file of a model folder, so the head lies in a folder of its own, `critic/value_head.safetensors`.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tasks.training.errors import TrainingError

NAME = "value_head"
FILE = Path("critic") / "value_head.safetensors"


def install(model: Any, folder: Path) -> None:
    """Adds the head, before sharding: as the folder has it, else one that values every state with 0."""
    if not getattr(model, "scores_in_pieces", False):
        raise TrainingError(
            f"{type(model).__name__} shows no last hidden state to a value head: take an objective without a critic"
        )
    head = nn.Linear(model.config.get_text_config().hidden_size, 1)
    for parameter in head.parameters():
        nn.init.zeros_(parameter)
    if (folder / FILE).is_file():
        head.load_state_dict(load_file(folder / FILE))
    model.value_head = head


def judge(model: Any, hidden: Tensor) -> None:
    """Inside the forward pass, where FSDP has gathered the weights: the values of the states, kept for `taken`."""
    if hasattr(model, NAME):
        model.valued = model.value_head(hidden).float()[:, 0]


def taken(model: Any, positions: Tensor) -> Tensor | None:
    """Values at the given positions of the last forward pass; None without a head. They are handed out once."""
    if not hasattr(model, NAME):
        return None
    values: Tensor = model.valued[positions]
    del model.valued
    return values


def split(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Takes the head's weights out of a model's, under their own names."""
    return {name.removeprefix(NAME + "."): weights.pop(name) for name in list(weights) if name.startswith(NAME + ".")}


def save(weights: dict[str, Tensor], folder: Path) -> None:
    """Writes what `split` gave; nothing where there was no head."""
    if weights:
        (folder / FILE).parent.mkdir()
        save_file({name: value.to(torch.float32).contiguous() for name, value in weights.items()}, folder / FILE)
