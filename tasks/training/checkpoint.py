"""Resumable checkpoints of a run, and the finished model in Hugging Face format. Both appear whole or not at all."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.numpy import load_file, save_file
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as load_sharded
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded
from torch.distributed.tensor import DTensor
from transformers.modeling_utils import PreTrainedModel

from tasks.training import folder
from tasks.training.agreement import Agreement, ByRow
from tasks.training.errors import TrainingError
from tasks.training.probe import Probes
from tasks.training.ranks import Ranks

KEPT = 2
COUNTS = ("step", "trained", "skipped", "skips")


@dataclass
class Position:
    """Where a run stands, apart from weights and optimiser state."""

    step: int = 0  # optimiser steps done, or skipped
    trained: int = 0  # tokens of steps that were taken
    skipped: int = 0  # tokens of steps whose loss or gradient was NaN or infinite
    skips: int = 0  # such steps
    proximal: ByRow | None = None  # log-probs under the weights of step 0, where the objective needs them
    agreement: Agreement | None = None
    probes: Probes | None = None  # under the weights of step 0


def save(
    work: Path,
    model: PreTrainedModel,
    optimiser: torch.optim.Optimizer,
    position: Position,
    facts: dict[str, str],
    ranks: Ranks,
) -> None:
    """Writes `checkpoints/step-N` over all ranks and drops all but the newest two."""
    target = work / "checkpoints" / f"step-{position.step:08d}"
    agreement = position.agreement and asdict(position.agreement)
    counts = {name: getattr(position, name) for name in COUNTS}
    state = {**counts, "agreement": agreement, "probes": position.probes}
    with _together(target, facts, ranks) as partial:
        weights, moments = get_state_dict(model, optimiser)
        save_sharded({"model": weights, "optimiser": moments}, checkpoint_id=partial)
        if ranks.first:
            (partial / "position.json").write_text(json.dumps(state))
            if position.proximal is not None:
                save_file({str(i): values for i, values in position.proximal.items()}, partial / "proximal.safetensors")
    if ranks.first:
        for old in _complete(work)[:-KEPT]:
            shutil.rmtree(old)


def resume(
    work: Path, model: PreTrainedModel, optimiser: torch.optim.Optimizer, facts: dict[str, str]
) -> Position | None:
    """Loads the newest complete checkpoint into model and optimiser; None where there is none.

    Raises TrainingError where the checkpoint is of a run with other `facts`.
    """
    found = _complete(work)
    if not found:
        return None
    newest = found[-1]
    made_by = folder.done(newest) or {}
    if any(made_by.get(name) != value for name, value in facts.items()):
        raise TrainingError(f"{work} holds checkpoints of another run: remove it or name another work folder")
    weights, moments = get_state_dict(model, optimiser)
    loaded: dict[str, Any] = {"model": weights, "optimiser": moments}
    load_sharded(loaded, checkpoint_id=newest)
    set_state_dict(model, optimiser, model_state_dict=loaded["model"], optim_state_dict=loaded["optimiser"])
    state = json.loads((newest / "position.json").read_text())
    proximal = newest / "proximal.safetensors"
    return Position(
        **{name: state[name] for name in COUNTS},
        proximal={int(i): values for i, values in load_file(proximal).items()} if proximal.exists() else None,
        agreement=Agreement(**state["agreement"]) if state["agreement"] else None,
        probes=state["probes"],
    )


def export(
    output: Path, source: Path, model: PreTrainedModel, reports: dict[str, Any], facts: dict[str, str], ranks: Ranks
) -> None:
    """The model folder: float32 master weights, all else copied from `source`, and each report as a JSON file."""
    weights = {}
    for name, parameter in model.state_dict().items():
        whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter  # every rank takes part
        if ranks.first:
            weights[name] = whole.detach().cpu()
    if not ranks.first:
        return
    with folder.appearing(output, facts) as partial:
        model.save_pretrained(partial, state_dict=weights)
        folder.copy_companions(source, partial)
        for name, report in reports.items():
            (partial / name).write_text(json.dumps(report, indent=1))


def _complete(work: Path) -> list[Path]:
    return sorted(path for path in (work / "checkpoints").glob("step-*") if folder.done(path))


@contextmanager
def _together(target: Path, facts: dict[str, str], ranks: Ranks) -> Iterator[Path]:
    """`folder.appearing` for a folder that every rank writes into (shared storage where there are several nodes)."""
    if ranks.first:
        with folder.appearing(target, facts) as partial:
            ranks.barrier()
            yield partial
            ranks.barrier()
    else:
        ranks.barrier()
        yield folder.partial_of(target)
        ranks.barrier()
