"""A box that is given the gateway's socket reaches the gateway with its session's key, and nothing else."""

import asyncio
import json
import os
import shutil
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandboxes.backends.base import GATEWAY_URL, BoxSpec, Limits, SandboxError
from sandboxes.backends.runner.common import AGENT
from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.scripted.engine import Scripted
from sandboxes.gateway.server.boxes import Door, open_to_boxes
from sandboxes.gateway.server.listen import Embedded, bind, config, url_of
from sandboxes.gateway.settings import Settings

ASK = """
import http.client, json, sys
url, method, path, key, body = json.loads(sys.argv[1])
connection = http.client.HTTPConnection(url, timeout=10)
connection.request(method, path, body, {"Authorization": "Bearer " + key, "content-type": "application/json"})
answer = connection.getresponse()
print(json.dumps([answer.status, answer.read().decode()]))
"""


class Around:
    """A gateway with a door for boxes."""

    def __init__(self, client, gateway, door):
        self.client, self.gateway, self.door = client, gateway, door

    def spec(self, **more):
        return BoxSpec(gateway=self.door.path, **more)


@asynccontextmanager
async def around(home, replies=("hello from the model",)):
    # Below no folder that is one user's alone: bubblewrap runs as the boxes' own uid.
    folder = tempfile.mkdtemp(prefix="door-")
    os.chmod(folder, 0o755)  # noqa: PTH101
    door = Door(Path(folder, "door", "gateway.sock"), AGENT if os.geteuid() == 0 else None)
    door.prepare()
    bound = bind("127.0.0.1", 0)
    try:
        async with Scripted(list(replies)).serve() as engine:
            gateway = Gateway(Settings(engine=engine, home=home, model="scripted"))
            app = gateway.app()
            server = Embedded(config(app))
            async with (
                open_to_boxes(door, app, gateway.journal, server),
                served(server, bound),
                GatewayClient(url_of(bound), gateway.operator_key) as client,
            ):
                await reachable(door.path)
                yield Around(client, gateway, door)
    finally:
        bound.close()
        shutil.rmtree(folder)


@asynccontextmanager
async def served(server, bound):
    running = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        yield
    finally:
        server.should_exit = True
        await running


async def reachable(path):
    async with asyncio.timeout(10):
        while not path.exists():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.fixture
async def it(tmp_path):
    async with around(tmp_path) as found:
        yield found


async def ask(box, method, path, key, body=None):
    where = GATEWAY_URL.removeprefix("http://")
    request = json.dumps([where, method, path, key, None if body is None else json.dumps(body)])
    result = await box.exec(["python3", "-c", ASK, request], timeout_s=30)
    assert result.exit_code == 0, result.stderr.decode()
    status, text = json.loads(result.stdout)
    return status, json.loads(text)


async def test_a_box_calls_the_model_with_its_sessions_key_and_the_call_is_recorded(backend, it):
    box = await backend.start(it.spec())
    try:
        session = await it.client.start_session("t")
        status, models = await ask(box, "GET", "/v1/models", session.api_key)
        assert (status, models["data"][0]["id"]) == (200, "scripted")
        call = {"model": "scripted", "messages": [{"role": "user", "content": "é" * 200_000}], "max_tokens": 30}
        status, refused = await ask(box, "POST", "/v1/chat/completions", session.api_key, {**call, "messages": []})
        assert status == 400, refused
        call["messages"][0]["content"] = "hi"
        status, answer = await ask(box, "POST", "/v1/chat/completions", session.api_key, call)
        assert (status, answer["choices"][0]["message"]["content"]) == (200, "hello from the model")
        [row] = await it.client.calls(session.session_id, episode_id="e", attempt_id="a")
        assert row.token_status == "exact"
    finally:
        await box.close()


async def test_only_a_model_key_opens_anything_from_inside_a_box(backend, it):
    box = await backend.start(it.spec())
    try:
        session = await it.client.start_session("t")
        for key in (session.reward_key, it.gateway.operator_key, "none"):
            for path in ("/v1/models", "/health", "/docs", "/engines", f"/sessions/{session.session_id}/calls"):
                status, body = await ask(box, "GET", path, key)
                assert (status, "model key" in body["error"]["message"]) == (401, True), (path, body)
        for key in (session.reward_key, session.api_key):
            status, _ = await ask(box, "POST", "/rl/set_reward", key, {"reward": 1.0})
            assert status == 401
    finally:
        await box.close()


REACH = """
import os, socket
for address in [("192.0.2.1", 80), ("127.0.0.1", 1), ("127.0.0.1", 8000)]:
    try:
        socket.create_connection(address, 3)
        print("reached", address)
    except OSError:
        pass
try:
    socket.create_server(("127.0.0.1", 8900), reuse_port=True)
    print("took the port")
except OSError:
    pass
for where in ("/run", "/run/gateway"):
    try:
        open(where + "/x", "w")
        print("wrote", where)
    except OSError:
        pass
print(sorted(os.listdir("/run/gateway")) if os.access("/run/gateway", os.R_OK) else ["gateway.sock"])
print([name for _, name in socket.if_nameindex() if name.startswith("eth")])
"""


async def test_everything_else_is_out_of_reach(backend, it):
    box = await backend.start(it.spec())
    try:
        result = await box.exec(["python3", "-c", REACH], timeout_s=30)
        assert result.stdout == b"['gateway.sock']\n[]\n", result.stderr
    finally:
        await box.close()


async def test_a_box_without_the_socket_reaches_no_gateway(backend, it):
    box = await backend.start(BoxSpec())
    try:
        result = await box.exec(
            ["python3", "-c", ASK, json.dumps(["127.0.0.1:8900", "GET", "/", "k", None])], timeout_s=30
        )
        assert b"ConnectionRefusedError" in result.stderr
        assert (await box.exec(["ls", "/run/gateway"], timeout_s=10)).exit_code != 0
    finally:
        await box.close()


MANY = """
import socket, sys, threading
def one(n):
    with socket.create_connection(("127.0.0.1", 8900), 30) as s:
        body = b"x" * 3_000_000
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\\r\\nHost: h\\r\\nAuthorization: Bearer %s\\r\\n" % sys.argv[1].encode())
        s.sendall(b"Content-Length: %d\\r\\nConnection: close\\r\\n\\r\\n" % len(body) + body)
        answer = b""
        while piece := s.recv(65536):
            answer += piece
        statuses.append(answer.split()[1])
statuses = []
threads = [threading.Thread(target=one, args=(n,)) for n in range(20)]
[t.start() for t in threads]
[t.join() for t in threads]
print(statuses.count(b"400"))
"""


async def test_many_connections_with_large_bodies_pass_side_by_side(backend, it):
    box = await backend.start(it.spec(limits=Limits(pids=40)))
    try:
        session = await it.client.start_session("t")
        result = await box.exec(["python3", "-c", MANY, session.api_key], timeout_s=60)
        assert result.stdout == b"20\n", result.stderr
    finally:
        await box.close()


async def test_nothing_of_the_way_out_outlives_its_command_and_the_next_one_has_it_again(backend, it):
    box = await backend.start(it.spec())
    try:
        session = await it.client.start_session("t")
        for _ in range(3):
            assert (await ask(box, "GET", "/v1/models", session.api_key))[0] == 200
        left = await box.exec(["sh", "-c", "ps -e -o comm= > /tmp/left; cat /tmp/left"], timeout_s=10)
        assert sorted(left.stdout.split()) == [b"ps", b"python3", b"python3", b"sh"]  # the runner, its forwarder
    finally:
        await box.close()


async def test_a_background_process_keeps_the_way_out_between_commands(backend, it):
    box = await backend.start(it.spec())
    try:
        session = await it.client.start_session("t")
        told = json.dumps(["127.0.0.1:8900", "GET", "/v1/models", session.api_key, None])
        number = await box.start(["python3", "-c", "import time; time.sleep(1)\n" + ASK, told])
        assert (await box.exec(["true"], timeout_s=10)).exit_code == 0  # its end leaves the way open
        heard = b""
        while (output := await box.output(number)).exit_code is None:
            heard += output.stdout
            await asyncio.sleep(0.05)
        assert json.loads(heard + output.stdout)[0] == 200, output
    finally:
        await box.close()


async def test_a_box_is_shown_a_folder_with_the_socket_alone(backend, tmp_path):
    (tmp_path / "gateway.sock").touch()
    (tmp_path / "secret").touch()
    with pytest.raises(SandboxError, match=r"should hold the gateway's socket gateway\.sock alone"):
        await backend.start(BoxSpec(gateway=tmp_path / "gateway.sock"))


async def test_a_socket_that_cannot_be_reached_fails_the_start_and_says_why(backend, it):
    dead = it.door.path
    dead.unlink()
    dead.touch(mode=0o666)
    with pytest.raises(SandboxError, match="cannot be reached from this box"):
        await backend.start(it.spec())
    dead.unlink()


async def test_the_gateway_refuses_a_folder_that_is_not_the_sockets_own(tmp_path):
    (tmp_path / "other").touch()
    with pytest.raises(ValueError, match="holds other too"):
        Door(tmp_path / "gateway.sock").prepare()


async def test_the_socket_is_its_owners_alone_unless_a_group_is_named(tmp_path):
    door = Door(tmp_path / "door" / "gateway.sock")
    door.prepare()
    door.bind().close()
    assert (door.path.stat().st_mode & 0o777, door.path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    Door(door.path, os.getgid()).bind().close()
    assert (door.path.stat().st_mode & 0o777, door.path.parent.stat().st_mode & 0o777) == (0o660, 0o710)
