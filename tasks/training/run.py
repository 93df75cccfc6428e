"""The main path of a training run, on every rank: load, look, step, export."""

import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from transformers.modeling_utils import PreTrainedModel

from tasks.training import agreement, checkpoint, folder, metrics, optimiser, probe
from tasks.training import model as policy
from tasks.training.checkpoint import Position
from tasks.training.config import TrainConfig
from tasks.training.data import Row
from tasks.training.errors import NotFinite, TrainingError
from tasks.training.identity import identity
from tasks.training.lock import exclusive
from tasks.training.metrics import MetricsLog
from tasks.training.mlflow_run import open_run
from tasks.training.packing import Minibatch, minibatches
from tasks.training.ranks import Ranks, joined
from tasks.training.step import Accumulated, accumulate, look


@dataclass
class Run:
    """Everything a step needs."""

    config: TrainConfig
    rows: Sequence[Row]
    facts: dict[str, str]  # which run this is
    plan: list[Minibatch]
    ranks: Ranks
    model: PreTrainedModel
    optimiser: torch.optim.Optimizer
    position: Position
    log: MetricsLog | None  # on the first rank


def run(config: TrainConfig, rows: Sequence[Row]) -> None:
    """Trains and writes `config.output`. Repeating a finished run does nothing; a killed one goes on."""
    facts = {"run": identity(config)}
    if _finished(config, facts):
        return
    with joined(config) as ranks, exclusive(config.work_folder, ranks):
        job = _prepare(config, rows, ranks, facts)
        status = "FAILED"
        try:
            _train(job)
            status = "FINISHED"
        finally:
            if job.log:
                job.log.close(status)


def _finished(config: TrainConfig, facts: dict[str, str]) -> bool:
    marker = folder.done(config.output)
    if marker is None and config.output.exists():
        raise TrainingError(f"{config.output} exists and is not a finished model: remove it or name another output")
    if marker and marker.get("run") != facts["run"]:
        raise TrainingError(
            f"{config.output} was made by another run: a model folder is never replaced, name another output"
        )
    return marker is not None


def _prepare(config: TrainConfig, rows: Sequence[Row], ranks: Ranks, facts: dict[str, str]) -> Run:
    model = policy.load(config, ranks)
    adamw = optimiser.adamw(model, config)
    position = checkpoint.resume(config.work_folder, model, adamw, facts) or Position()
    log = ranks.only_first(lambda: _open_log(config, facts, position))
    return Run(config, rows, facts, minibatches(rows, config), ranks, model, adamw, position, log)


def _open_log(config: TrainConfig, facts: dict[str, str], position: Position) -> MetricsLog:
    tracked = None
    if config.mlflow:
        settings = {key: str(value) for key, value in config.model_dump(mode="json", exclude={"mlflow"}).items()}
        tracked = open_run(config.mlflow, config.work_folder / "mlflow.json", facts, settings)
    return MetricsLog(config.work_folder, tracked, resumed_at=position.step)


def _train(job: Run) -> None:
    started = time.monotonic()
    config, position = job.config, job.position
    if position.step == 0:
        position.probes = probe.take(job.model, job.rows, job.ranks)
        if _needs_proximal(job):
            position.proximal = look(job.model, job.rows, config, job.ranks)
            _agree(job, position.proximal)
    last: dict[str, float] = {}
    while position.step < len(job.plan):
        last = _step(job)
        if config.checkpoint_every and position.step % config.checkpoint_every == 0 and position.step < len(job.plan):
            checkpoint.save(config.work_folder, job.model, job.optimiser, position, job.facts, job.ranks)
    summary = {
        "steps": position.step,
        "rows": len(job.rows),
        "tokens_trained": sum(len(job.rows[i].positions) for chosen in job.plan for i in chosen),
        "agreement": position.agreement and asdict(position.agreement),
        "last_step": last,
        "mlflow_run": job.log and job.log.mlflow_run,
        "train_seconds": round(time.monotonic() - started, 3),
    }
    reports = {
        folder.SUMMARY: summary,
        folder.PROBE: probe.compare(position.probes or [], probe.take(job.model, job.rows, job.ranks)),
    }
    checkpoint.export(config.output, config.model, job.model, reports, job.facts, job.ranks)
    if job.ranks.first:
        shutil.rmtree(config.work_folder / "checkpoints", ignore_errors=True)


def _needs_proximal(job: Run) -> bool:
    """With a single step the proximal log-probs are the current ones, so looking first would change nothing."""
    return job.config.objective == "grpo" and job.config.grpo.proximal == "recomputed" and len(job.plan) > 1


def _step(job: Run) -> dict[str, float]:
    """One optimiser step; returns its metrics."""
    started = time.monotonic()
    config, position = job.config, job.position
    chosen = job.plan[position.step]
    proximal = position.proximal
    if config.grpo.proximal == "behaviour" and config.objective == "grpo":
        proximal = {i: job.rows[i].logprobs for i in chosen}
    found = accumulate(job.model, chosen, job.rows, proximal, config, job.ranks)
    if position.step == 0 and position.agreement is None:
        _agree(job, _everyones(found, job.ranks))
    norm = optimiser.clip(job.model, config.grad_clip)
    if not torch.isfinite(torch.tensor(norm)):
        names = ", ".join(job.rows[i].name for i in chosen[:8])
        raise NotFinite(f"the gradient of step {position.step + 1} is NaN or infinite; its first rows: {names}")
    rate = optimiser.learning_rate(config, position.step, len(job.plan))
    optimiser.update(job.optimiser, rate)
    position.step += 1
    seconds = time.monotonic() - started
    values = metrics.of_step(found.sums, [job.rows[i] for i in chosen], agreement.policy_version(job.rows, config))
    values |= {
        "steps_planned": len(job.plan),
        "grad_norm": norm,
        "learning_rate": rate,
        "tokens_per_second": values["tokens_seen"] / seconds,
    }
    if job.log:
        job.log.write(position.step, values)
    return values


def _everyones(found: Accumulated, ranks: Ranks) -> agreement.ByRow:
    return {i: values for part in ranks.gather(found.logprobs) for i, values in part.items()}


def _agree(job: Run, trainer: agreement.ByRow) -> None:
    if job.config.objective != "grpo":
        return
    job.position.agreement = agreement.measure(trainer, job.rows, job.config)
    if job.log and job.position.agreement:
        job.log.write(0, job.position.agreement.metrics())
