"""Metrics reach a tracking server live; its outage costs nothing but a delay."""

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from mlflow import MlflowClient
from mlflow.data import get_source

from tasks.training import outbox
from tasks.training.config import Dataset, MlflowTarget, TrainConfig
from tasks.training.errors import TrainingError
from tasks.training.saving.checkpoint import Checkpoints
from tasks.training.tracking import mlflow_run, report
from tasks.training.tracking.metrics import MetricsLog


class Server(ThreadingHTTPServer):
    """Answers MLflow's four routes, keeps what it was sent, and is out of order on request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.files: list[str] = []  # artifacts, by their paths
        self.out_of_order = False
        self.refuse = ""  # a route that is answered with 400
        self.instead: tuple[int, bytes] | None = None  # what something before the server answers to everything

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def metrics(self, key: str) -> list[tuple[int, float]]:
        sent = [m for route, body in self.seen if route == "runs/log-batch" for m in body.get("metrics", [])]
        return [(m["step"], m["value"]) for m in sent if m["key"] == key]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        code = 503 if self.server.out_of_order else 404
        self._answer(code, {"error_code": "RESOURCE_DOES_NOT_EXIST"})

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.files.append(self.path)
        self._answer(200, None)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.out_of_order or self.server.instead:
            return self._answer(503, {})
        if self.path.endswith(self.server.refuse or "nothing"):
            return self._answer(400, {"error_code": "INVALID_PARAMETER_VALUE"})
        self.server.seen.append((self.path.removeprefix("/api/2.0/mlflow/"), body))
        return self._answer(
            200,
            {
                "experiment_id": "1",
                "run": {"info": {"run_id": "made", "artifact_uri": "mlflow-artifacts:/1/made/artifacts"}},
            },
        )

    def _answer(self, code: int, body: dict[str, Any] | None) -> None:
        code, raw = self.server.instead or (code, b"" if body is None else json.dumps(body).encode())
        self.send_response(code)
        if 300 <= code < 400:
            self.send_header("Location", "/login")
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


@pytest.mark.parametrize("at", ["checkpoints", "figures"])
def test_a_run_that_was_killed_behind_its_export_is_ended_when_it_is_started_again(
    at: str,
    configure: Callable[..., TrainConfig],
    train: Callable[[TrainConfig], Path],
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = configure(mlflow={"tracking_uri": server.url}, checkpoint_every=1)
    with monkeypatch.context() as killed:
        killed.setattr(report, "end", lambda log, *_: [log._file.close(), log.run._box.close()])
        if at == "checkpoints":
            killed.setattr(Checkpoints, "drop", killed_here)
            with pytest.raises(KeyboardInterrupt):
                train(config)
        else:
            train(config)
    (config.work_folder / outbox.QUEUE).open("a").write('{"route": "runs/log-ba')
    statuses = ["RUNNING"]
    for _ in range(2):
        assert [body["status"] for route, body in server.seen if route == "runs/update"] == statuses
        train(config)
        statuses = ["RUNNING", "FINISHED"]
    assert any("diagnosis" in str(body.get("tags")) for _, body in server.seen)
    assert any(path.endswith("figures/loss.png") for path in server.files)
    assert not (config.work_folder / "checkpoints").exists()
    assert outbox.left_over(config.work_folder) == []


def killed_here(*_: object) -> None:
    raise KeyboardInterrupt


def opened(work: Path, server: Server, facts: dict[str, str] | None = None) -> mlflow_run.MlflowRun:
    return mlflow_run.open_run(work, MlflowTarget(tracking_uri=server.url), facts or {"run": "a"}, {"seed": "0"})


def test_an_outage_delays_metrics_and_stops_nothing(server: Server, tmp_path: Path) -> None:
    run = opened(tmp_path, server)
    server.out_of_order = True
    run.log(1, {"loss": 2.0})
    run.flush()
    server.out_of_order = False
    run.log(2, {"loss": 1.0})
    assert run.finish("FINISHED") == 0
    assert server.metrics("loss") == [(1, 2.0), (2, 1.0)]


@pytest.mark.parametrize("instead", [(200, b"<html>maintenance</html>"), (200, b"[]"), (302, b"")])
def test_what_is_no_answer_of_mlflow_is_an_outage(instead: tuple[int, bytes], server: Server, tmp_path: Path) -> None:
    server.instead = instead  # at the start
    run = opened(tmp_path, server)
    server.instead = None
    run.flush()
    assert run.run_id == "made"
    server.instead = instead  # and later
    run.log(1, {"loss": 2.0})
    run.flush()
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"png")
    run.artifact(picture, picture.name)
    run.flush()
    server.instead = None
    assert run.finish("FINISHED") == 0
    assert outbox._state(tmp_path).refused == 0
    assert server.metrics("loss") == [(1, 2.0)]
    assert server.seen[-1][1]["status"] == "FINISHED"


def test_what_an_outage_kept_is_sent_by_another_process_and_once(server: Server, tmp_path: Path) -> None:
    server.out_of_order = True  # also at the start: there is no run so far
    (tmp_path / "work").mkdir()
    run = opened(tmp_path / "work", server)
    run.log(1, {"loss": 2.0, "broken": math.nan})
    assert run.finish("FINISHED") > 0
    assert outbox.left_over(tmp_path) == [tmp_path / "work"]
    with pytest.raises(httpx.HTTPError):
        outbox.send_left_over(tmp_path / "work")
    server.out_of_order = False
    for _ in range(2):
        outbox.send_left_over(tmp_path / "work")
    assert outbox.left_over(tmp_path) == []
    assert outbox.run_id(tmp_path / "work") == "made"
    assert server.metrics("loss") == [(1, 2.0)]
    assert server.metrics("broken") == []
    assert [body["status"] for route, body in server.seen if route == "runs/update"] == ["RUNNING", "FINISHED"]


def test_a_process_that_died_while_it_wrote_loses_that_line_only(server: Server, tmp_path: Path) -> None:
    server.out_of_order = True
    run = opened(tmp_path, server)
    run.log(1, {"loss": 2.0})
    run.finish("FAILED")
    with (tmp_path / outbox.QUEUE).open("a") as queue:
        queue.write('{"route": "runs/log-ba')
    server.out_of_order = False
    outbox.send_left_over(tmp_path)
    assert server.metrics("loss") == [(1, 2.0)]


def test_what_the_server_refuses_for_good_is_told_and_left_out(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = opened(tmp_path, server)
    server.refuse = "runs/log-inputs"
    run.describe({}, {}, [Dataset(name="ts-1", digest="d")])
    run.log(1, {"loss": 2.0})
    assert run.finish("FINISHED") == 0
    assert "MLflow refused runs/log-inputs" in capsys.readouterr().err
    assert server.metrics("loss") == [(1, 2.0)]


def test_two_processes_do_not_send_at_once(server: Server, tmp_path: Path) -> None:
    run = opened(tmp_path, server)
    assert outbox.send_left_over(tmp_path) is False
    run.finish("FINISHED")
    assert outbox.send_left_over(tmp_path) is True


def test_a_restart_continues_the_remembered_run_of_the_same_facts(server: Server, tmp_path: Path) -> None:
    for facts in ({"run": "a"}, {"run": "a"}, {"run": "b"}):
        opened(tmp_path, server, facts).finish("FAILED")
    assert [route for route, _ in server.seen].count("runs/create") == 2


def test_a_server_that_refuses_the_run_stops_it_at_once(server: Server, tmp_path: Path) -> None:
    server.refuse = "runs/create"
    with pytest.raises(TrainingError, match="Correct mlflow, or leave it out"):
        opened(tmp_path, server)


@pytest.mark.stack
@pytest.mark.timeout(600)
def test_a_real_server_gets_all_of_a_run_though_it_is_stopped_and_started_meanwhile(
    configure, train, tmp_path, free_ports, monkeypatch
) -> None:
    """Parameters, metrics, use of the machine, inputs, tags, pictures: through the client that the UI's data is read with."""
    (port,) = free_ports(1)
    place = tmp_path / "mlflow"
    place.mkdir()
    config = configure(epochs=2, learning_rate=3e-4, mlflow=described(f"http://127.0.0.1:{port}"))
    process = start(place, port)
    try:
        write = MetricsLog.write

        def stop_at_two(log: MetricsLog, step: int, values: dict[str, float]) -> None:
            write(log, step, values)
            if step == 2:
                assert log.run
                log.run.flush()
                end(process)

        monkeypatch.setattr(MetricsLog, "write", stop_at_two)
        train(config)
        assert outbox.left_over(tmp_path) == [config.work_folder]
        process = start(place, port)
        train(config)  # finished: it only sends what it kept
        assert outbox.left_over(tmp_path) == []
        told(config)
    finally:
        end(process)


def described(url: str) -> dict[str, Any]:
    source = {"path": "/lake/training_rows", "delta_table_version": 7}
    rows = {"name": "ts-1", "digest": "d" * 64, "source": source, "profile": {"num_rows": 10}}
    calls = {"name": "calls", "digest": "version 3", "context": "selected from", "source": source}
    return {"tracking_uri": url, "experiment": "toy", "tags": {"prefect.flow_run_id": "f-1"}, "datasets": [rows, calls]}


def told(config: TrainConfig) -> None:
    assert config.mlflow
    client = MlflowClient(config.mlflow.tracking_uri)
    run = client.get_run(outbox.run_id(config.work_folder))
    assert run.info.status == "FINISHED"
    assert run.data.params["config.learning_rate"] == "0.0003"
    assert run.data.tags["prefect.flow_run_id"] == "f-1"
    assert run.data.tags["diagnosis"] == report.HEALTHY
    entries = [json.loads(line) for line in (config.work_folder / "metrics.jsonl").read_text().splitlines()]
    sent = [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, "loss")]
    assert sent == [(entry["step"], entry["loss"]) for entry in entries if "loss" in entry]
    assert 0 <= run.data.metrics["system/system_memory_usage_percentage"] <= 100
    inputs = {one.dataset.name: one for one in run.inputs.dataset_inputs}
    assert inputs.keys() == {"ts-1", "calls"}
    assert get_source(inputs["ts-1"].dataset).to_dict() == {"path": "/lake/training_rows", "delta_table_version": 7}
    assert inputs["ts-1"].dataset.digest == "d" * 36
    assert inputs["calls"].tags[0].value == "selected from"
    pictures = {one.path for one in client.list_artifacts(run.info.run_id, "figures")}
    assert pictures == {f"figures/{name}.png" for name in ("loss", "reward", "kl", "ratio", "agreement")}
    kept = Path(client.download_artifacts(run.info.run_id, "config.json"))
    assert json.loads(kept.read_text())["learning_rate"] == 3e-4
    assert Path(client.download_artifacts(run.info.run_id, "figures/ratio.png")).read_bytes()[:4] == b"\x89PNG"


def start(place: Path, port: int) -> subprocess.Popen[bytes]:
    """An MLflow server as the stack starts it, once it answers."""
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--artifacts-destination", str(place / "artifacts")]
    own = {"MLFLOW_BACKEND_STORE_URI": f"sqlite:///{place / 'mlflow.db'}", "MLFLOW_DISABLE_TELEMETRY": "true"}
    own["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"
    with (place / "log").open("ab") as log:
        process = subprocess.Popen(
            command, env=os.environ | own, cwd=place, stdout=log, stderr=log, start_new_session=True
        )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, (place / "log").read_text()[-2000:]
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).text == "OK":
                return process
        time.sleep(0.1)
    raise AssertionError("the MLflow server did not come up")


def end(process: subprocess.Popen[bytes]) -> None:
    """With its workers: they are of its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    process.wait(timeout=60)
