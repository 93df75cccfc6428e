"""One MLflow run over the tracking server's REST interface.

Importing the MLflow client costs each training process 1.7 s, httpx 0.15 s, and few routes are all we need.
"""

import json
import math
import sys
import time
from pathlib import Path

import httpx

from tasks.training.config import Dataset, MlflowTarget
from tasks.training.errors import TrainingError
from tasks.training.outbox import Outbox, is_outage

FLUSH_S = 2.0
PATIENCE_S = 60.0  # longest pause between two tries while the server is away


class MlflowRun:
    """Tells MLflow of a run as it goes. An outage, also one at the start, delays that and never stops the training."""

    def __init__(self, box: Outbox) -> None:
        self._box = box
        self._pause = FLUSH_S
        self._tried_at = -math.inf

    @property
    def run_id(self) -> str | None:
        """None while no server could be asked for one."""
        return self._box.state.run_id

    def describe(self, parameters: dict[str, str], tags: dict[str, str], datasets: list[Dataset]) -> None:
        """Parameters are logged under `config.`, so that they cannot clash with those of whoever made the run."""
        listed = [{"key": f"config.{key}", "value": value[:6000]} for key, value in parameters.items()]
        self._box.put("runs/log-batch", params=listed)
        self.tag(tags)
        if datasets:
            self._box.put("runs/log-inputs", datasets=[_input(one) for one in datasets])

    def tag(self, tags: dict[str, str]) -> None:
        if tags:
            self._box.put("runs/log-batch", tags=[{"key": key, "value": value[:5000]} for key, value in tags.items()])

    def log(self, step: int, values: dict[str, float]) -> None:
        """Queue the finite ones of a step's values; every two seconds what is queued is sent."""
        stamp = int(time.time() * 1000)
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        metrics = [{"key": key, "value": value, "timestamp": stamp, "step": step} for key, value in finite.items()]
        if metrics:
            self._box.put("runs/log-batch", metrics=metrics)
        if time.monotonic() - self._tried_at > self._pause:
            self.flush()

    def artifact(self, file: Path, name: str) -> None:
        self._box.upload(file, name)

    def flush(self) -> None:
        self._tried_at = time.monotonic()
        try:
            self._box.send()
            self._pause = FLUSH_S
        except httpx.HTTPError as error:
            self._pause = min(PATIENCE_S, 2 * self._pause)
            sys.stderr.write(f"MLflow does not take metrics now ({error}); they are kept and sent later\n")

    def finish(self, status: str) -> int:
        """Ends the run as FINISHED or FAILED; returns how many bytes of requests are still kept for later."""
        self._box.put("runs/update", status=status, end_time=int(time.time() * 1000))
        self.flush()
        waiting = self._box.waiting
        if waiting:
            sys.stderr.write(
                "what MLflow was not told is kept; `lakeloop maintain` or the next start of the run sends it\n"
            )
        self._box.close()
        return waiting


def open_run(work: Path, target: MlflowTarget, facts: dict[str, str], parameters: dict[str, str]) -> MlflowRun:
    """The run that the work folder remembers for the same facts, else `target.run_id`, else a new one.

    Raises TrainingError where the server refuses it; one that does not answer is told later.
    """
    box = Outbox(work, target, facts)
    run = MlflowRun(box)
    if not box.resumed:
        run.describe(parameters, target.tags, target.datasets)
    box.put("runs/update", status="RUNNING")
    try:
        box.send()
    except httpx.HTTPError as error:
        if not is_outage(error):
            box.close()
            raise TrainingError(f"MLflow at {target.tracking_uri}: {error}. Correct mlflow, or leave it out") from error
        run.flush()
    return run


def _input(dataset: Dataset) -> dict[str, object]:
    """An input in the form of `mlflow.data`."""
    return {
        "tags": [{"key": "mlflow.data.context", "value": dataset.context}],
        "dataset": {
            "name": dataset.name[:500],
            "digest": dataset.digest[:36],
            "source_type": dataset.source_type,
            "source": json.dumps(dataset.source),
            "profile": json.dumps(dataset.profile),
        },
    }
