"""What an MLflow server is to be told, in its order, kept in a file until it took it. Imports no torch.

Every request may be sent twice (MLflow keeps one of equal metrics, parameters, tags and inputs), so a request counts as sent
once the server has answered, and a process that dies in between only repeats it.
"""

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import httpx
from pydantic import BaseModel, ConfigDict

from tasks.training.config import MlflowTarget
from tasks.training.errors import TrainingError

BATCH = 1000  # the server's limit of metrics in one log-batch call
STATE, QUEUE = "mlflow.json", "mlflow-outbox.jsonl"


class State(BaseModel):
    """What is known of the run; beside the queue, in a file of its own."""

    model_config = ConfigDict(extra="forbid")

    facts: dict[str, str]
    target: MlflowTarget
    run_id: str | None = None  # None until a server could be asked for one
    artifacts: str | None = None  # the run's artifact URI
    sent: int = 0  # bytes of the queue that the server has taken
    refused: int = 0  # requests that it will never take


class Outbox:
    """The queue of one work folder. One process at a time; `Busy` for the second."""

    def __init__(self, work: Path, target: MlflowTarget, facts: dict[str, str]) -> None:
        """Goes on with the queue of the same facts, else begins anew: the run is `target.run_id`, or made by `send`."""
        self._work = work
        self._lock = _locked(work)
        known = _state(work)
        self.resumed = known is not None and known.facts == facts
        if known is None or known.facts != facts:
            (work / QUEUE).unlink(missing_ok=True)
            known = State(facts=facts, target=target, run_id=target.run_id)
        self.state = known
        self._queue = (work / QUEUE).open("a+", encoding="utf-8")
        self._queue.truncate(_whole(work / QUEUE))  # a line that a killed process began
        self._client = _client(target)
        self._save()

    def put(self, route: str, **body: Any) -> None:
        """Queue a call of the REST interface; the run's id is filled in when it is sent."""
        self._queue.write(json.dumps({"route": route, "body": body}) + "\n")
        self._queue.flush()

    def upload(self, file: Path, name: str) -> None:
        """Queue a file, which must stay where it is, as the run's artifact `name`."""
        self._queue.write(json.dumps({"file": str(file.resolve()), "name": name}) + "\n")
        self._queue.flush()

    def send(self) -> None:
        """Send what waits. httpx.HTTPError where the server does not answer or is out of order; then it waits on.

        What the server refuses for good is told on standard error and left out.
        """
        if self.state.run_id is None:
            self.state.run_id, self.state.artifacts = self._create()
            self._save()
        for request, end in self._waiting():
            try:
                self._deliver(request)
            except httpx.HTTPStatusError as error:
                if is_outage(error):
                    raise
                self.state.refused += 1
                sys.stderr.write(
                    f"MLflow refused {request.get('route', request.get('name'))}: {error.response.text[:300]}\n"
                )
            self.state.sent = end
            self._save()

    @property
    def status(self) -> str | None:
        """What the run was last said to be: RUNNING, FINISHED or FAILED."""
        requests = map(json.loads, (self._work / QUEUE).read_text(encoding="utf-8").splitlines())
        states = [request["body"]["status"] for request in requests if request.get("route") == "runs/update"]
        return states[-1] if states else None

    @property
    def waiting(self) -> int:
        """Bytes that the server has not taken."""
        return (self._work / QUEUE).stat().st_size - self.state.sent

    def close(self) -> None:
        self._queue.close()
        self._client.close()
        self._lock.close()

    def _waiting(self) -> Iterator[tuple[dict[str, Any], int]]:
        """Requests with where they end in the queue; metrics that follow each other are one request."""
        merged: list[dict[str, Any]] = []
        end = self.state.sent
        with (self._work / QUEUE).open("rb") as queue:
            queue.seek(end)
            for line in queue:
                if not line.endswith(b"\n"):
                    break  # the process died while writing it
                request = json.loads(line)
                metrics = request.get("body", {}).get("metrics") if len(request.get("body", {})) == 1 else None
                if merged and (metrics is None or len(merged) + len(metrics) > BATCH):
                    yield {"route": "runs/log-batch", "body": {"metrics": merged}}, end
                    merged = []
                end += len(line)
                if metrics is None:
                    yield request, end
                else:
                    merged = merged + metrics
        if merged:
            yield {"route": "runs/log-batch", "body": {"metrics": merged}}, end

    def _deliver(self, request: dict[str, Any]) -> None:
        if "file" in request:
            self._put_file(Path(request["file"]), request["name"])
        else:
            self._call(request["route"], {"run_id": self.state.run_id, **request["body"]})

    def _put_file(self, file: Path, name: str) -> None:
        if self.state.artifacts is None:
            found = self._client.get("api/2.0/mlflow/runs/get", params={"run_id": self.state.run_id})
            self.state.artifacts = _told(found, "run", "info", "artifact_uri")
        scheme, _, path = str(self.state.artifacts).partition(":")
        if scheme != "mlflow-artifacts" or not file.exists():
            sys.stderr.write(
                f"{name} is not sent to MLflow, it stays at {file}: artifacts are kept at {self.state.artifacts}\n"
            )
            return
        route = f"api/2.0/mlflow-artifacts/artifacts/{path.lstrip('/')}/{name}"
        answer = self._client.put(route, content=file.read_bytes()).raise_for_status()
        if answer.content:  # MLflow says nothing, or {}
            _told(answer)

    def _create(self) -> tuple[str, str]:
        target = self.state.target
        asked = {"experiment_name": target.experiment}
        found = self._client.get("api/2.0/mlflow/experiments/get-by-name", params=asked)
        if found.status_code == httpx.codes.NOT_FOUND:
            experiment = _told(self._call("experiments/create", {"name": target.experiment}), "experiment_id")
        else:
            experiment = _told(found, "experiment", "experiment_id")
        wanted = {"experiment_id": experiment, "start_time": int(time.time() * 1000), "run_name": target.run_name}
        made = self._call("runs/create", wanted)
        return _told(made, "run", "info", "run_id"), _told(made, "run", "info").get("artifact_uri")

    def _call(self, route: str, body: dict[str, Any]) -> httpx.Response:
        answer = self._client.post(f"api/2.0/mlflow/{route}", json=body)
        _told(answer)
        return answer

    def _save(self) -> None:
        partial = self._work / (STATE + ".partial")
        partial.write_text(self.state.model_dump_json())
        partial.replace(self._work / STATE)


class Busy(TrainingError):
    """Another process sends from this work folder."""


def is_outage(error: httpx.HTTPError) -> bool:
    """Whether to try again later; what a server answers with 4xx it will answer again.

    A redirection is something else that stands before the server, such as a login.
    """
    if not isinstance(error, httpx.HTTPStatusError):
        return True
    code = error.response.status_code
    passing = code in (httpx.codes.REQUEST_TIMEOUT, httpx.codes.TOO_MANY_REQUESTS)
    return passing or not httpx.codes.is_client_error(code)


def left_open(work: Path, facts: dict[str, str]) -> Outbox | None:
    """The queue of a run that ended otherwise than FINISHED. None where there is no such run, or another process is at it."""
    state = _state(work)
    if state is None or state.facts != facts:
        return None
    try:
        box = Outbox(work, state.target, facts)
    except Busy:
        return None
    if box.status != "FINISHED":
        return box
    box.close()
    return None


def run_id(work: Path) -> str | None:
    """The MLflow run of a work folder; None where there is none so far."""
    state = _state(work)
    return state.run_id if state else None


def left_over(runs: Path) -> list[Path]:
    """Work folders under `runs` with something that MLflow was not told."""
    found = []
    for file in sorted(runs.rglob(STATE)):
        state, queue = _state(file.parent), file.parent / QUEUE
        if state is not None and queue.exists() and queue.stat().st_size > state.sent:
            found.append(file.parent)
    return found


def send_left_over(work: Path) -> bool:
    """Send what a work folder kept; False where another process is at it. httpx.HTTPError where the server is still away."""
    state = _state(work)
    if state is None:
        return True
    try:
        box = Outbox(work, state.target, state.facts)
    except Busy:
        return False
    try:
        box.send()
    finally:
        box.close()
    return True


def _state(work: Path) -> State | None:
    file = work / STATE
    return State.model_validate_json(file.read_text()) if file.exists() else None


def _whole(queue: Path) -> int:
    """Bytes up to the end of its last whole line."""
    return queue.read_bytes().rfind(b"\n") + 1


def _locked(work: Path) -> IO[str]:
    file = (work / (QUEUE + ".lock")).open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise Busy(f"another process sends to MLflow from {work}") from error
    return file


def _told(answer: httpx.Response, *keys: str) -> Any:
    """What MLflow's JSON says under these keys. httpx.HTTPError also where it is none, as of a page about maintenance."""
    answer.raise_for_status()
    try:
        found = answer.json()
        if not isinstance(found, dict):  # MLflow's is one, if an empty one
            raise TypeError
        for key in keys:
            found = found[key]
    except (ValueError, LookupError, TypeError):
        raise httpx.DecodingError(
            f"{answer.url} answers {answer.status_code} with something that is not of MLflow: {answer.text[:80]!r}",
            request=answer.request,
        ) from None
    return found


def _client(target: MlflowTarget) -> httpx.Client:
    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    user, password = os.environ.get("MLFLOW_TRACKING_USERNAME"), os.environ.get("MLFLOW_TRACKING_PASSWORD")
    return httpx.Client(
        base_url=target.tracking_uri.rstrip("/"),
        timeout=httpx.Timeout(10, connect=3),
        headers={"Authorization": f"Bearer {token}"} if token else {},
        auth=(user, password) if user and password else None,
    )
