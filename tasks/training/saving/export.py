"""The finished model in Hugging Face format, which appears whole or not at all."""

import json
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers.modeling_utils import PreTrainedModel

from tasks.training import folder
from tasks.training.config import TrainConfig
from tasks.training.errors import TrainingError
from tasks.training.model import critic, lora
from tasks.training.ranks import Ranks


def export(
    config: TrainConfig, model: PreTrainedModel, reports: dict[str, Any], facts: dict[str, str], ranks: Ranks
) -> None:
    """`config.output`: float32 weights, all else copied from the input, and each report as a JSON file.

    A run with adapters leaves them in `adapter/` and merged into the weights; the merged model, read back, must score the
    probes as the trained one did. Raises TrainingError where it does not, or where the disk has no room.
    """
    weights = _gathered(model, ranks)
    ranks.only_first(lambda: _write(config, model, weights, reports, facts, exact=ranks.device.type == "cpu"))


def _gathered(model: PreTrainedModel, ranks: Ranks) -> dict[str, Tensor]:
    """The whole weights, on the first rank alone. Tied weights stay one tensor, which is written once."""
    weights: dict[str, Tensor] = {}
    known: dict[int, Tensor] = {}
    for name, parameter in model.state_dict(keep_vars=True).items():
        if id(parameter) not in known:
            whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter  # every rank takes part
            known[id(parameter)] = whole.detach().cpu() if ranks.first else torch.empty(0)
        weights[name] = known[id(parameter)]
    return weights if ranks.first else {}


def _write(
    config: TrainConfig,
    model: PreTrainedModel,
    weights: dict[str, Tensor],
    reports: dict[str, Any],
    facts: dict[str, str],
    *,
    exact: bool,
) -> None:
    try:
        with folder.appearing(config.output, facts) as partial:
            head = critic.split(weights)
            if config.lora:
                lora.save(model, weights, partial)
                lora.merge(config.model, partial)
            else:
                model.save_pretrained(partial, state_dict=weights)
            critic.save(head, partial)
            folder.copy_companions(config.model, partial)
            for name, report in reports.items():
                (partial / name).write_text(json.dumps(report, indent=1))
            if config.lora:
                lora.check(partial, reports[folder.PROBE], exact=exact)
    except (OSError, SafetensorError) as error:
        raise TrainingError(
            f"the model could not be written to {config.output}: {error}. Nothing half-written is left there; make room "
            "and start again, the run goes on from its newest checkpoint"
        ) from error
