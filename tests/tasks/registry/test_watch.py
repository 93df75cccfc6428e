import http.server
import json
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta

import pytest

from tasks.registry.watch import Watch


class World:
    """MLflow, engine and Prefect behind one real HTTP server; what they say is set by the test."""

    def __init__(self):
        self.promoted = None
        self.served = "1"
        self.runs = []
        self.started = 0

    def answer(self, path):
        if path.startswith("/api/2.0/mlflow/registered-models/alias"):
            return None if self.promoted is None else {"model_version": {"version": str(self.promoted)}}
        if path == "/weight_info":
            return {"weight_version": self.served}
        if path == "/api/flow_runs/filter":
            return self.runs
        if path == "/api/deployments/name/reconcile/reconcile":
            return {"id": "d1"}
        assert path == "/api/deployments/d1/create_flow_run"
        self.started += 1
        return {"id": f"run-{self.started}"}


@pytest.fixture
def world():
    world = World()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("content-length", 0)))
            answer = world.answer(self.path)
            self.send_response(404 if answer is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        do_POST = do_GET

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    world.url = f"http://127.0.0.1:{server.server_port}"
    world.watch = Watch(world.url, world.url, f"{world.url}/api", "tiny")
    yield world
    server.shutdown()
    thread.join()
    server.server_close()


def run(**ago):
    at = (datetime.now(UTC) - timedelta(**ago)).isoformat()
    return {"start_time": at, "expected_start_time": at}


def test_a_promoted_version_that_is_not_served_starts_a_reconcile_run(world):
    world.promoted = 2
    assert world.watch.step() == "run-1"


@pytest.mark.parametrize(("promoted", "served"), [(None, "1"), (1, "1")])
def test_nothing_promoted_or_nothing_to_change_starts_nothing(world, promoted, served):
    world.promoted, world.served = promoted, served
    assert world.watch.step() is None
    assert world.started == 0


@pytest.mark.parametrize("label", ["default", "-1", "0"])
def test_weights_nobody_can_name_are_replaced_by_the_promoted_ones(world, label):
    world.promoted, world.served = 1, label
    assert world.watch.step() == "run-1"


def test_a_run_under_way_is_waited_for(world):
    world.promoted, world.runs = 2, [run(seconds=20)]
    assert world.watch.step() is None


def test_a_run_that_has_been_running_for_ever_was_killed_and_is_not_waited_for(world):
    world.promoted, world.runs = 2, [run(hours=2)]
    assert world.watch.step() == "run-1"


def test_a_run_scheduled_for_later_is_not_waited_for(world):
    world.promoted, world.runs = 2, [{"start_time": None, "expected_start_time": run(hours=-1)["start_time"]}]
    assert world.watch.step() == "run-1"


def test_the_watcher_is_small():
    code = "import sys, tasks.registry.watch; print([m for m in ('mlflow', 'prefect', 'torch', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
