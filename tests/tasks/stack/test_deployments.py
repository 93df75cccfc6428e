import http.server
import json
import threading

import httpx
import pytest

from lakehouse.home import Home
from tasks.stack import deployments
from tasks.stack.probes import READY


@pytest.fixture
def prefect():
    """Variables and work pools over HTTP. The next requests get the statuses in `trouble` first."""
    trouble, held = [], {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
            name = body.get("name") or self.path.rpartition("/")[2]
            if trouble:
                status = trouble.pop(0)
            elif self.command == "POST":
                status, held[name] = (409 if name in held else 201), body
            elif name in held:
                status = 200
                held[name] |= body
            else:
                status = 404
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(held.get(name)).encode())

        do_PATCH = do_GET = do_POST

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/api", trouble, held
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("statuses", [[], [503]])
def test_what_was_registered_is_noted_also_when_the_database_is_locked_for_a_moment(prefect, tmp_path, statuses):
    url, trouble, held = prefect
    home = Home(tmp_path)
    for _ in range(2):  # the first time the variables are made, then changed
        trouble.extend(statuses)
        deployments.note(url, home)
        assert {name: one["value"] for name, one in held.items()} == {
            deployments.VARIABLE: deployments.fingerprint(),
            deployments.OWNER: str(tmp_path),
        }
    assert deployments.registered(url) == READY


def test_a_pool_that_exists_is_kept_and_other_refusals_are_errors(prefect):
    url, trouble, held = prefect
    deployments.create_pool(url)
    deployments.create_pool(url)
    assert held["lakeloop"]["type"] == "process"
    trouble.append(500)
    with pytest.raises(httpx.HTTPStatusError):
        deployments.create_pool(url)
