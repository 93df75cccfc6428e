"""One MLflow run over the tracking server's REST interface.

Importing the MLflow client costs each training process 1.7 s, httpx 0.15 s, and four routes are all we need.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from tasks.training.config import MlflowTarget
from tasks.training.errors import TrainingError

FLUSH_S = 2.0
BATCH = 1000  # the server's limit for one log-batch call


class MlflowRun:
    """Buffers metrics and sends them every two seconds. An outage delays them and never stops the training."""

    def __init__(self, target: MlflowTarget) -> None:
        token = os.environ.get("MLFLOW_TRACKING_TOKEN")
        user, password = os.environ.get("MLFLOW_TRACKING_USERNAME"), os.environ.get("MLFLOW_TRACKING_PASSWORD")
        self._target = target
        self._client = httpx.Client(
            base_url=target.tracking_uri.rstrip("/") + "/api/2.0/mlflow/",
            timeout=10,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            auth=(user, password) if user and password else None,
        )
        self._waiting: list[dict[str, Any]] = []
        self._sent_at = time.monotonic()
        self.run_id = ""

    def start(self, run_id: str | None) -> None:
        """Continues the run, or creates one."""
        self.run_id = run_id or self._create()
        self._call("runs/update", {"run_id": self.run_id, "status": "RUNNING"})

    def describe(self, parameters: dict[str, str]) -> None:
        """Logs parameters under `config.`, so that they cannot clash with those of whoever made the run."""
        listed = [{"key": f"config.{key}", "value": value[:6000]} for key, value in parameters.items()]
        self._call("runs/log-batch", {"run_id": self.run_id, "params": listed})

    def log(self, step: int, values: dict[str, float]) -> None:
        stamp = int(time.time() * 1000)
        self._waiting += [{"key": k, "value": v, "timestamp": stamp, "step": step} for k, v in values.items()]
        if time.monotonic() - self._sent_at > FLUSH_S:
            self._flush()

    def finish(self, status: str) -> int:
        """Sends what waits and ends the run as FINISHED or FAILED; returns how many values could not be sent."""
        self._flush()
        try:
            self._call("runs/update", {"run_id": self.run_id, "status": status, "end_time": int(time.time() * 1000)})
        except httpx.HTTPError as error:
            sys.stderr.write(f"MLflow run {self.run_id} could not be closed: {error}\n")
        self._client.close()
        return len(self._waiting)

    def _flush(self) -> None:
        self._sent_at = time.monotonic()
        try:
            while self._waiting:
                self._call("runs/log-batch", {"run_id": self.run_id, "metrics": self._waiting[:BATCH]})
                self._waiting = self._waiting[BATCH:]
        except httpx.HTTPError as error:
            sys.stderr.write(f"MLflow does not take metrics now ({error}); they stay in metrics.jsonl, will retry\n")

    def _create(self) -> str:
        target = self._target
        found = self._client.get("experiments/get-by-name", params={"experiment_name": target.experiment})
        if found.status_code == httpx.codes.NOT_FOUND:
            experiment = self._call("experiments/create", {"name": target.experiment})["experiment_id"]
        else:
            experiment = found.raise_for_status().json()["experiment"]["experiment_id"]
        asked = {"experiment_id": experiment, "start_time": int(time.time() * 1000), "run_name": target.run_name}
        run_id: str = self._call("runs/create", asked)["run"]["info"]["run_id"]
        return run_id

    def _call(self, route: str, body: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._client.post(route, json=body).raise_for_status().json()
        return answer


def open_run(target: MlflowTarget, remembered: Path, facts: dict[str, str], parameters: dict[str, str]) -> MlflowRun:
    """The run that `remembered` (a JSON file) notes for the same facts, else `target.run_id`, else a new one.

    Raises TrainingError where the server does not answer.
    """
    known = json.loads(remembered.read_text()) if remembered.exists() else {}
    earlier = known.get("mlflow_run") if known.get("facts") == facts else None
    run = MlflowRun(target)
    try:
        run.start(earlier or target.run_id)
        if earlier is None:
            run.describe(parameters)
    except httpx.HTTPError as error:
        raise TrainingError(f"MLflow at {target.tracking_uri}: {error}. Start it, or leave mlflow out") from error
    remembered.write_text(json.dumps({"facts": facts, "mlflow_run": run.run_id}))
    return run
