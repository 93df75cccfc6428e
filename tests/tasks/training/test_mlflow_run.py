"""Metrics reach a tracking server live; its outage costs nothing but a delay."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tasks.training import mlflow_run
from tasks.training.config import MlflowTarget, TrainConfig
from tasks.training.errors import TrainingError


class Server(ThreadingHTTPServer):
    """Answers MLflow's four routes, keeps what it was sent, and is out of order on request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.out_of_order = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def metrics(self, key: str) -> list[tuple[int, float]]:
        sent = [m for route, body in self.seen if route == "runs/log-batch" for m in body.get("metrics", [])]
        return [(m["step"], m["value"]) for m in sent if m["key"] == key]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self._answer(404, {"error_code": "RESOURCE_DOES_NOT_EXIST"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.out_of_order:
            return self._answer(503, {})
        self.server.seen.append((self.path.removeprefix("/api/2.0/mlflow/"), body))
        return self._answer(200, {"experiment_id": "1", "run": {"info": {"run_id": "made"}}})

    def _answer(self, code: int, body: dict[str, Any]) -> None:
        raw = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join(timeout=10)


def test_a_run_sends_every_step_and_its_settings_and_finishes(
    configure: Callable[..., TrainConfig], train: Callable[[TrainConfig], Path], server: Server
) -> None:
    config = configure(mlflow={"tracking_uri": server.url, "experiment": "toy"})
    output = train(config)
    logged = [json.loads(line) for line in (config.work_folder / "metrics.jsonl").read_text().splitlines()]
    assert server.metrics("loss") == [(entry["step"], entry["loss"]) for entry in logged if "loss" in entry]
    assert server.metrics("agreement/mean")[0][0] == 0
    sent = next(body["params"] for route, body in server.seen if "params" in body)
    assert {"key": "config.learning_rate", "value": "0.01"} in sent
    assert server.seen[-1][1]["status"] == "FINISHED"
    assert json.loads((output / "training.json").read_text())["mlflow_run"] == "made"


def test_an_outage_delays_metrics_and_stops_nothing(server: Server) -> None:
    run = mlflow_run.MlflowRun(MlflowTarget(tracking_uri=server.url))
    run.start("given")
    server.out_of_order = True
    run._flush()
    run.log(1, {"loss": 2.0})
    run._flush()
    server.out_of_order = False
    run.log(2, {"loss": 1.0})
    assert run.finish("FINISHED") == 0
    assert server.metrics("loss") == [(1, 2.0), (2, 1.0)]


def test_a_restart_continues_the_remembered_run_of_the_same_facts(server: Server, tmp_path: Path) -> None:
    target = MlflowTarget(tracking_uri=server.url)
    for facts in ({"run": "a"}, {"run": "a"}, {"run": "b"}):
        mlflow_run.open_run(target, tmp_path / "mlflow.json", facts, {"seed": "0"})
    assert [route for route, _ in server.seen].count("runs/create") == 2


def test_a_server_that_does_not_answer_stops_the_run_at_once(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="Start it, or leave mlflow out"):
        mlflow_run.open_run(MlflowTarget(tracking_uri="http://127.0.0.1:9"), tmp_path / "mlflow.json", {}, {})
