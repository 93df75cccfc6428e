import http.server
import json
import socket
import threading
from contextlib import contextmanager

import pytest

from tasks.stack import probes
from tasks.stack.probes import Seen


@contextmanager
def serving(answers):
    """A real HTTP server that answers `answers[path]`, a number as this status, a threading.Event when it is set; else 404."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = answers.get(self.path.partition("?")[0])
            if isinstance(body, threading.Event):
                body.wait(10)
            told = isinstance(body, str)
            self.send_response(200 if told else body if isinstance(body, int) else 404)
            self.end_headers()
            self.wfile.write(body.encode() if told else b"")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


MODELS = json.dumps({"data": [{"id": "tiny"}]})
LOOKS = {
    "prefect": lambda url: probes.prefect(f"{url}/api", "/home/a"),
    "mlflow": probes.mlflow,
    "engine": lambda url: probes.engine(url, "tiny"),
    "gateway": lambda url: probes.gateway(url, "key", engine_url="http://e", model_name="tiny"),
}


@pytest.mark.parametrize("name", LOOKS)
def test_nobody_listening_is_nothing(name):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert LOOKS[name](f"http://127.0.0.1:{port}").seen is Seen.NOTHING


@pytest.mark.parametrize("name", LOOKS)
def test_another_http_server_is_foreign_and_named(name):
    with serving({"/": "hello"}) as url:
        look = LOOKS[name](url)
    assert look.seen is Seen.FOREIGN
    assert "another HTTP server (BaseHTTP" in look.what


@pytest.mark.parametrize("name", LOOKS)
def test_a_program_that_does_not_speak_http_is_not_taken_for_ours(name):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def babble():
            connection, _ = server.accept()
            connection.recv(100)
            connection.sendall(b"220 mail ready\r\n")
            connection.close()

        thread = threading.Thread(target=babble)
        thread.start()
        assert LOOKS[name](f"http://127.0.0.1:{server.getsockname()[1]}").seen is Seen.FOREIGN
        thread.join()


def test_a_program_that_takes_connections_and_says_nothing_is_silent(monkeypatch):
    monkeypatch.setattr(probes, "_client", lambda: probes.httpx.Client(timeout=0.2))
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert probes.mlflow(f"http://127.0.0.1:{server.getsockname()[1]}").seen is Seen.SILENT


@pytest.mark.parametrize(
    ("name", "answers", "later"),
    [
        ("engine", {"/v1/models": MODELS}, "/weight_info"),  # one that takes new weights in
        ("mlflow", {"/version": "3.17.2"}, "/health"),
    ],
)
def test_the_right_program_that_is_busy_or_ending_is_not_taken_for_another(name, answers, later, monkeypatch):
    monkeypatch.setattr(probes, "_client", lambda: probes.httpx.Client(timeout=0.2))
    done = threading.Event()
    with serving(answers | {later: done}) as url:
        assert LOOKS[name](url).seen is Seen.SILENT
        done.set()
    monkeypatch.undo()
    with serving({"/v1/models": MODELS, "/weight_info": 500, "/health": 503}) as url:
        assert LOOKS["engine"](url).seen is Seen.NOTHING


@pytest.mark.parametrize(
    ("name", "answers"),
    [
        ("prefect", {"/api/health": "true"}),
        ("mlflow", {"/version": "3.17.2", "/health": "OK"}),
        ("engine", {"/v1/models": MODELS, "/weight_info": "{}", "/health": ""}),
        ("gateway", {"/health": json.dumps({"status": "ok", "engine_url": "http://e", "model": "tiny"})}),
    ],
)
def test_the_right_program_is_ready(name, answers):
    with serving(answers) as url:
        assert LOOKS[name](url).seen is Seen.READY


@pytest.mark.parametrize(
    ("name", "answers", "names"),
    [
        ("engine", {"/v1/models": '{"data": [{"id": "other"}]}'}, "LAKELOOP_MODEL"),
        ("engine", {"/v1/models": MODELS}, "VLLM_SERVER_DEV_MODE"),
        (
            "prefect",
            {"/api/health": "true", "/api/variables/name/lakeloop_home": '{"value": "/home/b"}'},
            "the Prefect server of the home folder /home/b",
        ),
        ("gateway", {"/health": '{"engine_url": "http://x", "model": "big"}'}, "a gateway to big at http://x"),
    ],
)
def test_the_right_kind_of_program_with_other_settings_is_foreign_and_the_difference_is_named(name, answers, names):
    with serving(answers) as url:
        look = LOOKS[name](url)
    assert look.seen is Seen.FOREIGN
    assert names in look.what
