"""Train: the Prefect tasks that select a training set and run the trainer on it."""

import asyncio
import json
import os
from asyncio.subprocess import PIPE, STDOUT, Process
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from prefect import get_run_logger, task
from prefect.artifacts import acreate_link_artifact, acreate_markdown_artifact, acreate_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run

from lakehouse import store
from lakehouse.export import export_rows, rollout_temperature, training_set
from lakehouse.governance.erase import refuse_tainted
from lakehouse.selection.select import LoopStep, Selected, Selection, estimator_of, select
from tasks.progress import Progress
from tasks.registry.versions import Registry, RegistryError
from tasks.retrying import infrastructure
from tasks.showing import ashow
from tasks.stack.settings import Settings
from tasks.training import outbox
from tasks.training.config import Dataset, MlflowTarget, TrainConfig, launch_command
from tasks.training.diagnosis import Diagnosis, diagnose, history
from tasks.training.folder import SUMMARY

POLL_S = 0.5


class TrainingFailed(RuntimeError):
    """The trainer ended without a checkpoint; the message holds its last lines."""


@dataclass(frozen=True)
class Fitted:
    """A finished training run."""

    folder: Path
    mlflow_run_id: str
    metrics: dict[str, float]  # of the last step
    diagnosis: list[Diagnosis] = field(default_factory=list)  # why it does not learn; empty where nothing was found


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
def starting_point(parent: int | None) -> tuple[int, Path]:
    """The version to train from (the promoted one by default) and the folder of its weights, checked by digest."""
    settings = Settings()
    registry = Registry(settings.mlflow_url)
    version = parent if parent is not None else registry.promoted(settings.model_name)
    if version is None:
        raise RegistryError(f"nothing is promoted for {settings.model_name}: name a parent version, or release one")
    refuse_tainted(None, settings.model_name, version)
    return version, registry.intact(settings.model_name, version)


def version_folder(version: int) -> Path:
    """The weights of a registered version of the served model, checked by digest. Tainted where they may not be learnt from."""
    settings = Settings()
    refuse_tainted(None, settings.model_name, version)
    return Registry(settings.mlflow_url).intact(settings.model_name, version)


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=infrastructure)
async def choose_rows(selection: Selection, step: LoopStep | None = None) -> Selected:
    """Write the training set, and a table that says what became of every sampled token."""
    selected = await asyncio.to_thread(select, None, selection, step)
    ledger = selected.ledger
    rows = [{"tokens": ledger.sampled, "what": "sampled"}, {"tokens": ledger.trained, "what": "trained"}]
    rows += [{"tokens": n, "what": f"masked: {reason}"} for reason, n in ledger.masked.items()]
    rows += [{"tokens": n, "what": f"dropped: {reason}"} for reason, n in ledger.dropped.items()]
    await ashow(
        acreate_table_artifact,
        key="token-ledger",
        table=rows,
        description=f"Training set {selected.training_set_id}: every sampled token",
    )
    return selected


@task(cache_policy=NO_CACHE)
async def fit(training_set_id: str, config: TrainConfig, deadline_s: float) -> Fitted:
    """Export the rows and run the trainer to its end. TrainingFailed with its last lines, or after `deadline_s`."""
    told = await asyncio.to_thread(_origin, training_set_id, config)
    config = TrainConfig.model_validate(config.model_dump() | told)
    await asyncio.to_thread(export_rows, None, training_set_id, config.rows)
    config_file = config.work_folder / "config.json"
    config_file.parent.mkdir(parents=True, exist_ok=True)
    config_file.write_text(config.model_dump_json(indent=2))
    process = await asyncio.create_subprocess_exec(
        *launch_command(config_file, config.ranks), stdout=PIPE, stderr=STDOUT, env=trainer_environment()
    )
    last: deque[str] = deque(maxlen=40)
    try:
        async with asyncio.timeout(deadline_s):
            await asyncio.gather(_read(process, last), _follow(process, config))
    except TimeoutError:
        raise TrainingFailed(
            f"the trainer took longer than {deadline_s:.0f} s; its last lines:\n" + "\n".join(last)
        ) from None
    finally:
        await _end(process, config_file)
    await _report(config)
    if process.returncode != 0:
        raise TrainingFailed(f"the trainer ended with status {process.returncode}; its last lines:\n" + "\n".join(last))
    return _fitted(config)


@task(cache_policy=NO_CACHE, retries=3, retry_delay_seconds=[2, 10, 30], retry_condition_fn=infrastructure)
def tell_mlflow(work: Path) -> str:
    """Send what an outage kept from MLflow; the run's id. Fails where the server is still away: `maintain` tries again."""
    outbox.send_left_over(work)
    return outbox.run_id(work) or ""


def _temperature(training_set_id: str, config: TrainConfig) -> float:
    """At which the rows were sampled; 1 where the objective compares nothing with the sampler's log-probs."""
    if "behaviour" not in config.objective.needs:
        return 1.0
    found = rollout_temperature(None, training_set_id)
    if found == 0:
        raise TrainingFailed(
            f"training set {training_set_id} was sampled at temperature 0: its samples of a problem are all alike, and "
            f"{config.objective.name} has nothing to compare. Collect at a temperature above 0"
        )
    return found


def _origin(training_set_id: str, config: TrainConfig) -> dict[str, object]:
    """What the trainer is told of its rows: their advantages and temperature, and for ledger and MLflow where they are from."""
    known = training_set(None, training_set_id)
    origin: dict[str, object] = {
        "trained_tokens": known.n_trained_tokens,
        "advantage": estimator_of(known),
        "temperature": _temperature(training_set_id, config),
    }
    if config.mlflow is None:
        return origin
    lake = store.location(None)
    pinned = known.pinned_versions | {"training_rows": store.versions(lake)["training_rows"]}
    sources: dict[str, dict[str, str | int]] = {
        name: {"path": store.uri(lake, name), "delta_table_version": version} for name, version in pinned.items()
    }
    rows = Dataset(
        name=training_set_id,
        digest=known.digest,
        source=sources.pop("training_rows"),
        profile={
            "num_rows": known.n_rows,
            "num_episodes": known.n_episodes,
            "num_trained_tokens": known.n_trained_tokens,
            "filter": known.filter,
            "rubrics": ", ".join(known.rubrics),
        },
    )
    read = [
        Dataset(name=name, digest=f"version {source['delta_table_version']}", context="selected from", source=source)
        for name, source in sorted(sources.items())
    ]
    return origin | {"mlflow": _target(config.mlflow, training_set_id, [rows, *read])}


def _target(target: MlflowTarget, training_set_id: str, datasets: list[Dataset]) -> MlflowTarget:
    """With the inputs, and the way back to the flow run."""
    tags = {"training_set": training_set_id}
    note = f"Training set `{training_set_id}`"
    if flow_run.id:
        url = f"{Settings().prefect_url.removesuffix('/api')}/runs/flow-run/{flow_run.id}"
        tags |= {"prefect.flow_run_id": str(flow_run.id), "prefect.flow_run_url": url}
        note += f", [Prefect flow run]({url})"
    return target.model_copy(update={"tags": target.tags | tags | {"mlflow.note.content": note}, "datasets": datasets})


async def _report(config: TrainConfig) -> None:
    """Link to the MLflow run and say what keeps the run from learning, also where it failed."""
    found = diagnose(history(config.work_folder / "metrics.jsonl"))
    lines = [f"* **{one.name}**: {one.cause}. {one.remedy}" for one in found]
    await ashow(
        acreate_markdown_artifact,
        key="learning",
        markdown="\n".join(lines) or "Nothing was found that keeps the run from learning.",
    )
    for one in found:
        get_run_logger().warning(str(one))
    run_id = outbox.run_id(config.work_folder)
    if config.mlflow and run_id:
        link = f"{config.mlflow.tracking_uri}/#/runs/{run_id}"
        await ashow(acreate_link_artifact, key="mlflow-run", link=link, link_text=f"MLflow: {config.mlflow.run_name}")


def trainer_environment() -> dict[str, str]:
    """The trainer's environment. Freed memory is kept: giving large tensors back to the system and asking for them again
    at every step costs more than the arithmetic of a small model."""
    return os.environ | {
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(1 << 36),
        "TOKENIZERS_PARALLELISM": "false",
    }


async def _read(process: Process, last: deque[str]) -> None:
    assert process.stdout is not None
    log = get_run_logger()
    async for raw in process.stdout:
        line = raw.decode(errors="replace").rstrip()
        last.append(line)
        log.info(line)


async def _follow(process: Process, config: TrainConfig) -> None:
    """Turn the trainer's metrics into progress until it ends."""
    progress: Progress | None = None
    while process.returncode is None:
        plan, done = _steps(config)
        if plan and progress is None:
            progress = await Progress.begin(f"training {config.objective.name}", plan)
        if progress is not None and done > progress.done:
            await progress.advance(done - progress.done)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), POLL_S)


def _steps(config: TrainConfig) -> tuple[int, int]:
    """Optimiser steps planned and done; (0, 0) before the first."""
    try:
        lines = (config.work_folder / "metrics.jsonl").read_text().splitlines()
        latest = json.loads(lines[-1])
    except (FileNotFoundError, IndexError, ValueError):
        return 0, 0
    return int(latest.get("steps_planned", 0)), int(latest["step"])


async def _end(process: Process, config_file: Path) -> None:
    """Leave no trainer behind when the flow is cancelled or its time is over.

    A torchrun that is ended in the instant in which it starts a rank does not know of it, and the rank is too young to see its
    parent go; so whatever was started for this config is ended.
    """
    if process.returncode is None:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 10)
        except TimeoutError:
            process.kill()
            await process.wait()
    await asyncio.to_thread(end_ranks, config_file)


def end_ranks(config_file: Path) -> None:
    """Kill the processes on this machine that train by this config."""
    named = {"tasks.training", str(config_file)}
    ranks = [one for one in psutil.process_iter(["cmdline"]) if named <= set(one.info["cmdline"] or [])]
    for rank in ranks:
        with suppress(psutil.NoSuchProcess):
            rank.kill()
    psutil.wait_procs(ranks, timeout=10)


def _fitted(config: TrainConfig) -> Fitted:
    summary = json.loads((config.output / SUMMARY).read_text())
    return Fitted(
        config.output,
        outbox.run_id(config.work_folder) or "",
        summary["last_step"],
        [Diagnosis(**one) for one in summary["diagnosis"]],
    )
