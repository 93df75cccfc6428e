import http.server
import json
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
from safetensors.numpy import save_file

from tasks.serving import proof
from tasks.serving.engine import UNKNOWN_VERSION, Engine
from tasks.serving.errors import EngineError, ModelError
from tasks.serving.proof import Scored


class Control:
    """An engine's control routes on a real HTTP server. Routes in `broken` answer 500; every call is kept."""

    def __init__(self):
        self.calls, self.broken, self.label, self.reset = [], set(), "default", True

    def answer(self, path, body):
        route = path.partition("?")[0]
        self.calls.append(path)
        if route in self.broken:
            return 500, {"error": "it broke"}
        if route == "/update_weight_version":
            self.label = body["new_version"]
        answers = {"/weight_info": {"weight_version": self.label}, "/reset_prefix_cache": {"success": self.reset}}
        return 200, answers.get(route, {})


@pytest.fixture
def control():
    control = Control()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            status, answer = control.answer(self.path, json.loads(raw or b"{}"))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        do_POST = do_GET

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    control.url = f"http://127.0.0.1:{server.server_port}"
    yield control
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def weights(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path / "home"))
    folder = tmp_path / "weights"
    folder.mkdir()
    save_file({"lm_head.weight": np.zeros((2, 2), np.float32)}, folder / "model.safetensors")
    return folder


def test_a_reload_pauses_swaps_labels_forgets_caches_and_resumes_in_that_order(control, weights):
    with Engine(control.url) as engine:
        engine.reload(weights, 4)
        routes = [call.partition("?")[0] for call in control.calls]
        assert (engine.served_version(), engine.served_version(proven=False)) == (UNKNOWN_VERSION, 4)
        engine.label(4)
        assert engine.served_version() == 4
    assert routes == ["/pause", "/collective_rpc", "/update_weight_version", "/reset_prefix_cache", "/resume"]
    assert "/pause?mode=keep" in control.calls
    assert "/reset_prefix_cache?reset_running_requests=true" in control.calls


@pytest.mark.parametrize("swap", ["wait", "abort"])
def test_requests_in_flight_are_treated_as_asked_for(control, weights, swap):
    with Engine(control.url) as engine:
        engine.reload(weights, 4, swap=swap)
    assert f"/pause?mode={swap}" in control.calls


@pytest.mark.parametrize("route", ["/pause", "/collective_rpc", "/update_weight_version", "/reset_prefix_cache"])
def test_the_engine_is_resumed_whatever_step_of_a_reload_fails(control, weights, route):
    control.broken = {route}
    with Engine(control.url) as engine, pytest.raises(EngineError, match=f"{route} gave 500.*it broke"):
        engine.reload(weights, 4)
    assert control.calls[-1] == "/resume"


@pytest.mark.parametrize("route", ["/collective_rpc", "/reset_prefix_cache"])
def test_after_a_failed_swap_nobody_claims_to_know_the_weights(control, weights, route):
    control.broken = {route}
    with Engine(control.url) as engine:
        with pytest.raises(EngineError):
            engine.reload(weights, 4)
        assert engine.served_version() == UNKNOWN_VERSION


def test_old_caches_that_stay_fail_the_reload(control, weights):
    control.reset = False
    with Engine(control.url) as engine:
        with pytest.raises(EngineError, match="kept caches of the old weights"):
            engine.reload(weights, 4)
        assert engine.served_version() == UNKNOWN_VERSION


def test_damaged_weights_never_reach_the_engine(control, weights):
    (weights / "model.safetensors").write_bytes(b"half a fi")
    with Engine(control.url) as engine, pytest.raises(ModelError):
        engine.reload(weights, 4)
    assert control.calls == []


@pytest.mark.parametrize(
    ("label", "version"), [("default", 0), ("12", 12), ("-1", -1), ("nightly", -1), ("unproven-12-3f", -1)]
)
def test_a_label_is_a_version_number_or_unknown(control, label, version):
    control.label = label
    with Engine(control.url) as engine:
        assert engine.served_version() == version


def test_an_engine_that_is_not_there_is_waited_for_only_so_long():
    with Engine("http://127.0.0.1:9") as engine, pytest.raises(EngineError, match="not healthy within 0 s"):
        engine.wait_ready(0.3)


def test_a_call_to_an_engine_that_is_gone_says_where_it_says_why_and_how_it_comes_back():
    with (
        Engine("http://127.0.0.1:9") as engine,
        pytest.raises(EngineError, match=r"no engine answers .*logs/engine\.log.*lakeloop up"),
    ):
        engine.models()


@pytest.mark.engine
def test_calls_with_seeds_that_come_together_do_not_end_the_engine(engine_url):
    """Together their prompts are more than it computes in a step; the same seed draws the same tokens again."""
    drawn = random.Random(0)
    prompts = [[drawn.randrange(10, 400) for _ in range(500)] for _ in range(16)]
    with Engine(engine_url) as engine:
        model = engine.models()[0]

    def ask(prompt):
        asked = {"model": model, "prompt": prompt, "max_tokens": 4, "seed": sum(prompt)}
        answer = httpx.post(f"{engine_url}/v1/completions", json=asked, timeout=120, trust_env=False)
        return answer.raise_for_status().json()["choices"][0]["text"]

    with ThreadPoolExecutor(len(prompts)) as pool:
        together = list(pool.map(ask, prompts))
    assert [ask(prompt) for prompt in prompts[:3]] == together[:3]


@pytest.mark.engine
def test_a_real_engine_scores_tokens_as_the_trainer_does(engine_url):
    sequences = [[5, 77, 300, 301, 9], list(range(20, 60))]
    with Engine(engine_url) as engine:
        probes = proof.expected(engine.folder(), sequences)
        served = proof.served(engine, probes)
    assert [len(row) for row in served.plain] == [4, 39]
    assert len(served.heated) == 8
    found = proof.prove(served, Scored.trained(probes), None, version=1)
    assert found.passed, found.reason
    assert found.max_difference < 1e-4


@pytest.mark.engine
def test_a_real_engine_serves_new_weights_after_a_reload_and_the_old_ones_after_another(
    engine_url, tmp_path, monkeypatch, perturbed
):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path / "home"))
    sequences = [list(range(start, start + 40)) for start in (20, 200)]
    with Engine(engine_url) as engine:
        old, number = engine.folder(), engine.served_version()
        new = perturbed(old, tmp_path / "new")
        probes = proof.expected(new, sequences)
        before = proof.served(engine, probes)
        try:
            engine.reload(new, number + 1)
            assert engine.served_version(proven=False) == number + 1
            after = proof.served(engine, probes)
        finally:
            engine.reload(old, number)
            engine.label(number)
        assert proof.prove(after, Scored.trained(probes), before, version=number + 1).passed
        assert proof.prove(proof.served(engine, probes), before, after, version=number).passed
