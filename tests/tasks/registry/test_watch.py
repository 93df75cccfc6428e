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
        self.challenger = None
        self.refused = False
        self.served = "1"
        self.runs = []
        self.alive = []  # names of flows with a run at work
        self.split = None
        self.started = 0

    def answer(self, path, body):
        if path.startswith("/api/2.0/mlflow/registered-models/alias"):
            version = self.challenger if path.endswith("challenger") else self.promoted
            tags = [{"key": "refused", "value": "its files are gone"}] if self.refused else []
            return None if version is None else {"model_version": {"version": str(version), "tags": tags}}
        if path == "/weight_info":
            return {"weight_version": self.served}
        if path == "/engines":
            return {"engines": [], "split": self.split}
        if path == "/api/flow_runs/filter":
            asked = set(body["flows"]["name"]["any_"])
            return self.runs if "reconcile" in asked else [run(hours=9) for name in self.alive if name in asked]
        if path == "/api/deployments/name/reconcile/reconcile":
            return {"id": "d1"}
        assert path == "/api/deployments/d1/create_flow_run"
        self.started += 1
        return {"id": f"run-{self.started}"}


@pytest.fixture
def world(tmp_path):
    world = World()
    key = tmp_path / "operator"
    key.write_text("secret")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            answer = world.answer(self.path, json.loads(body or b"{}"))
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
    world.watch = Watch(world.url, world.url, f"{world.url}/api", "tiny", world.url, key)
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


@pytest.mark.parametrize("flow", ["improve", "canary"])
def test_the_challenger_may_be_served_while_a_loop_or_a_canary_is_at_work_and_not_afterwards(world, flow):
    world.promoted, world.challenger, world.served, world.alive = 2, 3, "3", [flow]
    assert world.watch.step() is None
    world.served = "1"  # neither of them
    assert world.watch.step() == "run-1"
    world.served, world.alive = "3", []
    assert world.watch.step() == "run-2"


def test_a_champion_that_moves_while_a_loop_serves_its_challenger_has_reconcile_look_who_moved_it(world):
    world.promoted, world.served, world.alive = 2, "2", ["improve"]
    assert world.watch.step() is None
    world.challenger, world.served = 3, "3"
    assert world.watch.step() is None
    world.promoted = 1
    assert world.watch.step() == "run-1"
    assert world.watch.step() is None  # it was the loop itself, and nothing changed
    world.promoted, world.served = 3, "3"  # promoted by the loop
    assert world.watch.step() is None
    world.challenger, world.served = 4, "4"
    assert world.watch.step() is None


def test_a_bad_version_promoted_while_a_loop_serves_its_challenger_is_looked_at_once(world):
    world.promoted, world.challenger, world.served, world.alive = 2, 3, "3", ["improve"]
    assert world.watch.step() is None
    world.promoted = 1
    world.runs = [run(seconds=20)]
    assert world.watch.step() is None  # not before what is under way has ended
    world.runs = []
    assert world.watch.step() == "run-1"
    world.refused = True
    assert [world.watch.step() for _ in range(2)] == [None] * 2


def test_a_version_that_was_refused_is_not_tried_again_while_a_good_one_serves(world):
    world.promoted, world.refused = 2, True
    assert [world.watch.step() for _ in range(3)] == [None] * 3
    world.served = "0"  # the engine was started again: somebody has to do something
    assert world.watch.step() == "run-1"
    world.promoted, world.refused, world.served = 3, False, "1"  # the alias moves on
    assert world.watch.step() == "run-2"


@pytest.mark.parametrize("flow", ["canary", "gate"])
def test_a_split_that_a_dead_canary_or_exam_left_is_ended(world, flow):
    world.promoted, world.split, world.alive = 1, {"share": 0.1}, [flow]
    assert world.watch.step() is None
    world.alive = []
    assert world.watch.step() == "run-1"
    world.watch.operator_key.unlink()  # no gateway was ever started
    assert world.watch.step() is None


def test_the_watcher_is_small():
    code = "import sys, tasks.registry.watch; print([m for m in ('mlflow', 'prefect', 'torch', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
