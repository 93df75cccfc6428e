"""Resumable checkpoints of a run: written beside the training, by every rank its part, and whole or not there at all."""

import json
import shutil
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as load_sharded
from torch.distributed.checkpoint.state_dict_saver import async_save
from transformers.modeling_utils import PreTrainedModel

from tasks.training import folder
from tasks.training.config import TrainConfig
from tasks.training.data.mapped import ByRow
from tasks.training.errors import TrainingError
from tasks.training.honesty.agreement import Agreement
from tasks.training.honesty.probe import Probes
from tasks.training.ranks import Ranks

FOLDER = "checkpoints"
KEPT = 2
FROZEN = ".frozen.safetensors"
COUNTS = ("step", "trained", "skipped", "skips")
TRAINED_ONLY = StateDictOptions(ignore_frozen_params=True, strict=False)  # beside adapters the weights are the input's


@dataclass
class Position:
    """Where a run stands, apart from weights and optimiser state. The schedule and the order of rows follow from it."""

    step: int = 0  # optimiser steps done, or skipped
    trained: int = 0  # tokens of steps that were taken
    skipped: int = 0  # tokens of steps whose loss or gradient was NaN or infinite
    skips: int = 0  # such steps
    frozen: Mapping[str, ByRow] = field(
        default_factory=dict
    )  # of every row, from before the first step: `step/before.py`
    agreement: Agreement | None = None
    probes: Probes | None = None  # under the weights of step 0


class Checkpoints:
    """The checkpoints in `<work>/checkpoints`. Every rank has one and calls the same methods in the same order.

    A step waits until its state is copied to memory; threads write it, with collectives in a group of their own. There is
    one at a time: `save` waits for the one before it. A folder takes its name once all ranks have written and synced theirs,
    so what a crash or a full disk leaves is never taken for a checkpoint. Several nodes need shared storage.
    """

    def __init__(self, config: TrainConfig, facts: dict[str, str], ranks: Ranks) -> None:
        self._root = config.work_folder / FOLDER
        self._every, self._facts, self._ranks = config.checkpoint_every, facts, ranks
        self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=config.timeout_s))
        self._closer = ThreadPoolExecutor(1, "checkpoint")
        self._pending: Future[None] | None = None
        self._step = 0

    def due(self, step: int) -> bool:
        return self._every > 0 and step % self._every == 0

    def save(self, model: PreTrainedModel, optimiser: torch.optim.Optimizer, position: Position) -> None:
        """Starts `step-N`. What keeps it from being written is said on standard error, and the run goes on."""
        self.settle()
        target = self._root / f"step-{position.step:08d}"
        states = self._ranks.gather(_random_state())
        self._ranks.only_first(lambda: shutil.rmtree(folder.partial_of(target), ignore_errors=True))
        weights, moments = get_state_dict(model, optimiser, options=TRAINED_ONLY)
        written = async_save(
            {"model": weights, "optimiser": moments},
            checkpoint_id=folder.partial_of(target),
            process_group=self._group,
        )
        assert isinstance(written, Future)
        files = {f"{name}{FROZEN}": of_rows for name, of_rows in position.frozen.items()}
        self._step = position.step
        self._pending = self._closer.submit(self._close, written, target, _described(position), files, states)

    def settle(self) -> None:
        """Waits until the checkpoint under way is there, or has failed; every rank hears of a failure on the first."""
        if self._pending is None:
            return
        pending, self._pending = self._pending, None
        failure = next((one for one in self._ranks.each(lambda: _failure(pending)) if one), None)
        if failure and self._ranks.first:
            shutil.rmtree(folder.partial_of(self._root / f"step-{self._step:08d}"), ignore_errors=True)
            kept = self._complete()
            rest = f"the newest whole one is {kept[-1].name}" if kept else "there is none yet"
            sys.stderr.write(
                f"the checkpoint of step {self._step} in {self._root} was not written: {failure}. "
                f"Training goes on; {rest}. Make room, or a killed run repeats what it did since\n"
            )

    def resume(self, model: PreTrainedModel, optimiser: torch.optim.Optimizer) -> Position | None:
        """Loads the newest complete checkpoint into model and optimiser, on any number of ranks; None where there is none.

        Raises TrainingError where the checkpoint is of a run with other `facts`.
        """
        found = self._complete()
        if not found:
            return None
        newest = found[-1]
        made_by = folder.done(newest) or {}
        if any(made_by.get(name) != value for name, value in self._facts.items()):
            raise TrainingError(
                f"{self._root.parent} holds checkpoints of another run: remove it or name another work folder"
            )
        weights, moments = get_state_dict(model, optimiser, options=TRAINED_ONLY)
        loaded: dict[str, Any] = {"model": weights, "optimiser": moments}
        load_sharded(loaded, checkpoint_id=newest)
        set_state_dict(
            model,
            optimiser,
            model_state_dict=loaded["model"],
            optim_state_dict=loaded["optimiser"],
            options=TRAINED_ONLY,
        )
        _restore_random_state(load_file(newest / "random.safetensors"), self._ranks.rank)
        state = json.loads((newest / "position.json").read_text())
        return Position(
            **{name: state[name] for name in COUNTS},
            frozen={
                file.name.removesuffix(FROZEN): {int(i): values for i, values in load_file(file).items()}
                for file in sorted(newest.glob("*" + FROZEN))
            },
            agreement=Agreement(**state["agreement"]) if state["agreement"] else None,
            probes=state["probes"],
        )

    def drop(self) -> None:
        """The run is finished: nothing is left to resume."""
        self.settle()
        if self._ranks.first:
            shutil.rmtree(self._root, ignore_errors=True)

    def _close(
        self,
        written: Future[Any],
        target: Path,
        described: str,
        files: dict[str, ByRow],
        states: list[dict[str, torch.Tensor]],
    ) -> None:
        """In a thread: behind every rank's part, the first rank adds the rest, the marker and the name."""
        written.result()
        if not self._ranks.first:
            return
        partial = folder.partial_of(target)
        (partial / "position.json").write_text(described)
        for name, of_rows in files.items():
            save_file({str(i): values for i, values in of_rows.items()}, partial / name)
        numbered = {f"{kind}.{rank}": state.numpy() for rank, one in enumerate(states) for kind, state in one.items()}
        save_file(numbered, partial / "random.safetensors")
        folder.finish(partial, target, self._facts)
        for old in self._complete()[:-KEPT]:
            shutil.rmtree(old)

    def _complete(self) -> list[Path]:
        return sorted(path for path in self._root.glob("step-*") if folder.done(path))


def drop_left(work: Path, facts: Mapping[str, str]) -> None:
    """What a run that was killed behind its export did not drop. Nothing where there are checkpoints of another run."""
    made_by = [folder.done(checkpoint) or facts for checkpoint in (work / FOLDER).glob("step-*")]
    if all(one[name] == value for one in made_by for name, value in facts.items()):
        shutil.rmtree(work / FOLDER, ignore_errors=True)


def _described(position: Position) -> str:
    counts = {name: getattr(position, name) for name in COUNTS}
    agreement = position.agreement and asdict(position.agreement)
    return json.dumps({**counts, "agreement": agreement, "probes": position.probes})


def _failure(pending: Future[None]) -> str | None:
    try:
        pending.result()
    except (OSError, SafetensorError) as error:
        return str(error)
    except CheckpointException as error:
        first = next(iter(error.failures.values()))[0]
        if not isinstance(first, OSError | RuntimeError):
            raise
        return str(first)
    return None


def _random_state() -> dict[str, torch.Tensor]:
    """Training draws nothing by itself; a model with code of its own may."""
    cuda = {"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else {}
    return {"cpu": torch.get_rng_state(), **cuda}


def _restore_random_state(states: Mapping[str, Any], rank: int) -> None:
    """A rank that was not there before keeps the state that it started with."""
    if f"cpu.{rank}" in states:
        torch.set_rng_state(torch.from_numpy(states[f"cpu.{rank}"]))
    if f"cuda.{rank}" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(torch.from_numpy(states[f"cuda.{rank}"]))
