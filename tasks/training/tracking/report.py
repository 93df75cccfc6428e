"""The end of a run, on the first rank: what kept it from learning, pictures, and what MLflow is told of both."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from tasks.training import outbox
from tasks.training.config import TrainConfig
from tasks.training.diagnosis import Diagnosis, diagnose, history, in_words
from tasks.training.tracking import figures
from tasks.training.tracking.metrics import MetricsLog
from tasks.training.tracking.mlflow_run import MlflowRun

HEALTHY = "nothing found"


def end(log: MetricsLog, config: TrainConfig, status: str) -> None:
    """Says why the run does not learn, if so, and ends its MLflow run with `status`."""
    found = diagnose(log.history)
    if found:
        sys.stderr.write(in_words(found) + "\n")
    if log.run:
        _tell(log.run, log.history, found, config)
    log.close(status)


def end_again(config: TrainConfig, facts: dict[str, str]) -> None:
    """Of a run that is finished: ends its MLflow run where it was killed first, and sends what an outage kept."""
    box = outbox.left_open(config.work_folder, facts)
    if box is None:
        _send_what_is_left(config)
        return
    entries = history(config.work_folder / "metrics.jsonl")
    run = MlflowRun(box)
    _tell(run, entries, diagnose(entries), config)
    run.finish("FINISHED")


def _send_what_is_left(config: TrainConfig) -> None:
    try:
        outbox.send_left_over(config.work_folder)
    except httpx.HTTPError as error:
        sys.stderr.write(f"MLflow still does not take what is kept in {config.work_folder}: {error}\n")


def _tell(
    run: MlflowRun, entries: Sequence[Mapping[str, Any]], found: Sequence[Diagnosis], config: TrainConfig
) -> None:
    run.tag({"diagnosis": in_words(found) or HEALTHY})
    file = config.work_folder / "config.json"
    if not file.exists():
        file.write_text(json.dumps(config.model_dump(mode="json"), indent=2))
    run.artifact(file, "config.json")
    run.artifact(config.work_folder / "metrics.jsonl", "metrics.jsonl")
    groups = config.work_folder / "groups.json"
    if groups.exists():
        run.artifact(groups, "groups.json")
    for picture in figures.draw(entries, config.work_folder / "figures"):
        run.artifact(picture, f"figures/{picture.name}")
