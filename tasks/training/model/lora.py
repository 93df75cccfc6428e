"""Low-rank adapters (LoRA, arXiv 2106.09685) through peft: injected before sharding, saved alone and merged."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, PeftModel, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from peft.utils import get_peft_model_state_dict
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.modeling_utils import PreTrainedModel

from tasks.training.config import LoraOptions
from tasks.training.errors import TrainingError
from tasks.training.score import score

FOLDER = "adapter"
DRIFT = 1e-3  # nats on average: what the merge's other order of summation can do in float32
DRIFT_IN_BF16 = 0.05  # the trained policy was looked at in bfloat16, the merged one is in float32
_PREFIX = "base_model.model."  # of names in an adapter's file, which peft expects


def inject(model: PreTrainedModel, options: LoraOptions) -> None:
    """Freezes the model and adds adapters in float32, B at zero.

    TrainingError where a name binds no module, or a head that is tied to the embeddings: merged, it would change them too.
    """
    tied = _in_two_places(model)
    targets = options.target_modules
    config = LoraConfig(
        r=options.rank,
        lora_alpha=options.alpha,
        target_modules=targets if isinstance(targets, str) else list(targets),
        lora_dropout=0.0,  # dropout would make the trainer another policy than the engine
        bias="none",
        task_type="CAUSAL_LM",
    )
    try:
        inject_adapter_in_model(config, model)
    except ValueError as error:
        raise TrainingError(f"lora: {error}") from error
    adapted = [(name, module) for name, module in model.named_modules() if isinstance(module, LoraLayer)]
    bound = [name for name, _ in adapted]
    unbound = (
        [] if isinstance(targets, str) else [end for end in targets if not any(_ends(name, end) for name in bound)]
    )
    if not bound or unbound:
        raise TrainingError(f"lora: {unbound or targets} is the end of no module's name in {type(model).__name__}")
    if shared := [name for name, module in adapted if id(getattr(module.get_base_layer(), "weight", None)) in tied]:
        raise TrainingError(
            f"lora: {', '.join(shared)} is tied to the other end of {type(model).__name__}, whose head and embeddings are one "
            "matrix: merged, the adapter would change both. Leave it out of target_modules"
        )


def _in_two_places(model: PreTrainedModel) -> set[int]:
    """Ids of the parameters that are, as of a head tied to the embeddings."""
    times = Counter(id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False))
    return {one for one, places in times.items() if places > 1}


def _ends(name: str, end: str) -> bool:
    return name == end or name.endswith("." + end)


def save(model: PreTrainedModel, weights: dict[str, Tensor], output: Path) -> None:
    """Writes `<output>/adapter` as peft reads it, from the whole weights by name."""
    config = model.peft_config["default"]
    found = get_peft_model_state_dict(model, state_dict=weights, save_embedding_layers=False)
    folder = output / FOLDER
    folder.mkdir()
    save_file(
        {_PREFIX + name: value.float().contiguous() for name, value in found.items()},
        folder / "adapter_model.safetensors",
    )
    config.save_pretrained(folder)


def merge(source: Path, output: Path) -> None:
    """Reads the input model and the saved adapter, adds them up in float32 and writes a whole model to `output`."""
    base = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, local_files_only=True)
    merged: Any = PeftModel.from_pretrained(base, str(output / FOLDER))
    merged.merge_and_unload(safe_merge=True).save_pretrained(output)


def check(output: Path, probes: list[dict[str, Any]], *, exact: bool) -> None:
    """Reads the merged model back. TrainingError where it is not the trained policy on the probes."""
    found = score(output, [probe["token_ids"] for probe in probes])
    gaps = [np.abs(np.subtract(new, probe["logprobs"])) for new, probe in zip(found, probes, strict=True)]
    drift, bound = float(np.concatenate(gaps).mean()), DRIFT if exact else DRIFT_IN_BF16
    if not drift <= bound:
        raise TrainingError(
            f"the merged model is not the trained one: their log-probs differ by {drift:.3g} nats on average over "
            f"{sum(map(len, gaps))} probe tokens, allowed are {bound:g}. Nothing was exported"
        )
