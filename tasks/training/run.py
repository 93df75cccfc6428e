"""The main path of a training run, on every rank: load, look, step, export."""

import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers.modeling_utils import PreTrainedModel

from tasks.training import folder
from tasks.training.config import TrainConfig
from tasks.training.data.mapped import Row
from tasks.training.data.packing import Minibatch, minibatches
from tasks.training.diagnosis import diagnose
from tasks.training.errors import NotFinite, TrainingError, own_rank
from tasks.training.folder import weights_digest
from tasks.training.honesty import agreement, ledger, probe
from tasks.training.model import policy
from tasks.training.ranks import Ranks, joined
from tasks.training.saving.checkpoint import Checkpoints, Position, drop_left
from tasks.training.saving.export import export
from tasks.training.saving.identity import identity
from tasks.training.saving.lock import exclusive, take
from tasks.training.step import optimiser
from tasks.training.step.aggregation import Weighing, weighing
from tasks.training.step.before import look_around
from tasks.training.step.passes import accumulate, look
from tasks.training.tracking import metrics, report
from tasks.training.tracking.metrics import MetricsLog
from tasks.training.tracking.mlflow_run import open_run


@dataclass
class Run:
    """Everything a step needs."""

    config: TrainConfig
    rows: Sequence[Row]
    facts: dict[str, str]  # which run this is
    plan: list[Minibatch]
    weighing: Weighing
    ranks: Ranks
    model: PreTrainedModel
    optimiser: torch.optim.Optimizer
    checkpoints: Checkpoints
    position: Position
    log: MetricsLog | None  # on the first rank


def run(config: TrainConfig, rows: Sequence[Row]) -> None:
    """Trains and writes `config.output`. A killed run goes on; a finished one, repeated, only ends what a kill kept open."""
    facts = {"run": identity(config)}
    if _finished(config, facts):
        if own_rank() == 0 and config.work_folder.exists():
            _tidy(config, facts)
        return
    with joined(config) as ranks, exclusive(config.work_folder, ranks):
        job = _prepare(config, rows, ranks, facts)
        status = "FAILED"
        try:
            _train(job)
            status = "FINISHED"
        finally:
            if job.log:
                report.end(job.log, config, status)


def _finished(config: TrainConfig, facts: dict[str, str]) -> bool:
    marker = folder.done(config.output)
    if marker is None and config.output.exists():
        raise TrainingError(f"{config.output} exists and is not a finished model: remove it or name another output")
    if marker and marker.get("run") != facts["run"]:
        raise TrainingError(
            f"{config.output} was made by another run: a model folder is never replaced, name another output"
        )
    return marker is not None


def _tidy(config: TrainConfig, facts: dict[str, str]) -> None:
    """Behind the export there is a moment in which a kill leaves checkpoints, and an MLflow run that goes on for ever."""
    try:
        held = take(config.work_folder)
    except TrainingError:  # who holds it does that, or is another run
        return
    with held:
        drop_left(config.work_folder, facts)
        report.end_again(config, facts)


def _prepare(config: TrainConfig, rows: Sequence[Row], ranks: Ranks, facts: dict[str, str]) -> Run:
    ledger.agree_on_rows(rows, config)
    config = config.model_copy(update={"policy_version": agreement.policy_version(rows, config)})
    model = policy.load(config, ranks)
    adamw = optimiser.adamw(model, config)
    checkpoints = Checkpoints(config, facts, ranks)
    position = checkpoints.resume(model, adamw) or Position()
    log = ranks.only_first(lambda: _open_log(config, facts, position))
    plan = minibatches(rows, config)
    return Run(config, rows, facts, plan, weighing(rows, config), ranks, model, adamw, checkpoints, position, log)


def _open_log(config: TrainConfig, facts: dict[str, str], position: Position) -> MetricsLog:
    tracked = None
    if config.mlflow:
        settings = {key: str(value) for key, value in config.model_dump(mode="json", exclude={"mlflow"}).items()}
        tracked = open_run(config.work_folder, config.mlflow, facts, settings)
    return MetricsLog(config.work_folder, tracked, resumed_at=position.step)


def _train(job: Run) -> None:
    started = time.monotonic()
    config, position = job.config, job.position
    if position.step == 0:
        _look(job)
    last: dict[str, Any] = {}
    while position.step < len(job.plan):
        last = _step(job) or last
        if job.checkpoints.due(position.step) and position.step < len(job.plan):
            job.checkpoints.save(job.model, job.optimiser, position)
    job.checkpoints.settle()
    if position.skips and not position.trained:
        raise NotFinite("every step was skipped, for its loss or gradient is NaN or infinite: nothing was trained")
    account = ledger.closed(job.rows, job.plan, config, trained=position.trained, skipped=position.skipped)
    summary = {
        "steps": position.step,
        "rows": len(job.rows),
        "tokens_trained": position.trained,
        "ledger": asdict(account),
        "agreement": position.agreement and asdict(position.agreement),
        "learnt_from": job.ranks.only_first(lambda: _digests(config.other_models)),
        "last_step": {name: value for name, value in last.items() if isinstance(value, int | float)},
        "diagnosis": [asdict(one) for one in diagnose(job.log.history)] if job.log else [],
        "mlflow_run": job.log and job.log.mlflow_run,
        "train_seconds": round(time.monotonic() - started, 3),
    }
    reports = {
        folder.SUMMARY: summary,
        folder.PROBE: probe.report(position.probes, job.model, job.rows, job.ranks),
    }
    export(config, job.model, reports, job.facts, job.ranks)
    job.checkpoints.drop()


def _digests(models: Mapping[str, Path]) -> dict[str, str]:
    return {what: weights_digest(model) for what, model in models.items()}


def _look(job: Run) -> None:
    """Before the first step: the rows, the probes, and what the objective needs to know under the starting weights."""
    config, position = job.config, job.position
    if job.log:
        job.log.look(*metrics.of_rows(job.rows, agreement.policy_version(job.rows, config), policy=_is_policy(config)))
    position.probes = probe.take(job.model, job.rows, job.ranks)
    position.frozen = look_around(job.model, job.rows, len(job.plan), config, job.ranks)
    if _is_policy(config):
        _agree(job)


def _is_policy(config: TrainConfig) -> bool:
    return "behaviour" in config.objective.needs


def _agree(job: Run) -> None:
    """The engine's log-probs against ours on the same tokens: of what was looked up, else of a few on-policy rows."""
    config, position = job.config, job.position
    trainer = position.frozen.get("proximal")
    if trainer is None:
        few = agreement.sample(job.rows, config)
        trainer = look(job.model, job.rows, config, job.ranks, few)["logprobs"]
    position.agreement = agreement.measure(trainer, job.rows, config)
    if job.log and position.agreement:
        job.log.write(0, position.agreement.metrics())
    elif job.log:
        version = agreement.policy_version(job.rows, config)
        sys.stderr.write(
            f"agreement with the engine is not measured: no row was sampled by version {version}, the input model's\n"
        )


def _step(job: Run) -> dict[str, Any] | None:
    """One optimiser step; returns its metrics. None for one that was skipped: its loss or gradient was not finite."""
    started = time.monotonic()
    config, position = job.config, job.position
    chosen = job.plan[position.step]
    try:
        sums = accumulate(job.model, chosen, job.rows, job.weighing, position.frozen, config, job.ranks)
        norm = _clipped(job, chosen)
    except NotFinite as error:
        _skip(job, chosen, error)
        return None
    rate = optimiser.learning_rate(config, position.step, len(job.plan))
    optimiser.update(job.optimiser, rate)
    position.step += 1
    position.trained += int(sums["tokens"])
    seconds = time.monotonic() - started
    values = metrics.of_step(sums, [job.rows[i] for i in chosen], agreement.policy_version(job.rows, config))
    values |= {
        "steps_planned": len(job.plan),
        "grad_norm": norm,
        "learning_rate": rate,
        "tokens_per_second": values["tokens_seen"] / seconds,
    }
    if _is_policy(config):
        values["proximal"] = config.proximal  # what `kl_to_proximal` is the distance to
    if job.log:
        job.log.write(position.step, values)
    return values


def _clipped(job: Run, chosen: Minibatch) -> float:
    """Clips the gradient; its norm before. NotFinite where it is none."""
    norm = optimiser.clip(job.model, job.config.grad_clip)
    if not math.isfinite(norm):
        names = ", ".join(job.rows[i].name for i in chosen[:8])
        raise NotFinite(f"the gradient of step {job.position.step + 1} is NaN or infinite; its first rows: {names}")
    return norm


def _skip(job: Run, chosen: Minibatch, error: NotFinite) -> None:
    """Leaves the weights as they are and goes on; NotFinite once there are more than `max_skipped_steps`."""
    position = job.position
    job.optimiser.zero_grad()
    position.step += 1
    position.skips += 1
    position.skipped += sum(len(job.rows[i].positions) for i in chosen)
    if job.log:
        job.log.write(position.step, {"skipped": str(error), "steps_planned": len(job.plan)})
        sys.stderr.write(f"step {position.step} is skipped: {error}\n")
    if position.skips > job.config.max_skipped_steps:
        raise NotFinite(
            f"{error}. {position.skips} steps were like that; max_skipped_steps is {job.config.max_skipped_steps}"
        )
