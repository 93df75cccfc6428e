"""`--socket`: the gateway as a process with a door for boxes, alone and as several workers."""

import asyncio
import signal
import sys
from contextlib import asynccontextmanager

import httpx
import pytest

from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.scripted.engine import Scripted

CALL = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}]}


@asynccontextmanager
async def process(home, engine_url, *more):
    """A gateway process with a door; gives it, a client and the operator key. Killed at the end."""
    arguments = ["--port", "0", "--engine", engine_url, "--home", str(home), "--model", "scripted", *more]
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sandboxes.gateway", "--socket", str(home / "door" / "g.sock"), *arguments),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        line = (await asyncio.wait_for(running.stdout.readline(), 60)).decode()
        key = (home / "keys" / "operator").read_text().strip()
        async with GatewayClient(line.split()[1], key) as client:
            yield running, client, key
    finally:
        if running.returncode is None:
            running.send_signal(signal.SIGTERM)
        await running.wait()


async def ask(home, key, method="POST", path="/v1/chat/completions", body=CALL):
    """One request at the door, which may need a moment to be there."""
    transport = httpx.AsyncHTTPTransport(uds=str(home / "door" / "g.sock"))
    async with (
        httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=30) as http,
        asyncio.timeout(60),
    ):
        while True:
            try:
                return await http.request(method, path, json=body, headers={"Authorization": f"Bearer {key}"})
            except httpx.ConnectError:
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_at_the_door_a_model_key_calls_the_model_and_no_other_key_opens_anything(tmp_path, workers):
    async with (
        Scripted(["hello"]).serve() as engine,
        process(tmp_path, engine, "--workers", workers) as (_, client, operator),
    ):
        async with asyncio.timeout(60):
            while not (sessions := await starts(client, 2)):  # noqa: ASYNC110 - workers are processes
                await asyncio.sleep(0.2)
        for session in sessions:  # with two workers one of them belongs to the other worker
            answer = await ask(tmp_path, session.api_key)
            assert (answer.status_code, answer.json()["choices"][0]["message"]["content"]) == (200, "hello")
            for key in (operator, session.reward_key, "none"):
                assert (await ask(tmp_path, key)).status_code == 401
                assert (await ask(tmp_path, key, "GET", "/health", None)).status_code == 401


async def starts(client, count):
    try:
        return [await client.start_session(f"t{n}") for n in range(count)]
    except Exception:  # noqa: BLE001 - workers are still starting
        return []


async def test_after_kill_9_the_door_is_where_it_was(tmp_path):
    async with Scripted(["hello"]).serve() as engine:
        async with process(tmp_path, engine) as (running, client, _):
            session = await client.start_session("t")
            assert (await ask(tmp_path, session.api_key)).status_code == 200
            running.send_signal(signal.SIGKILL)
            await running.wait()
        async with process(tmp_path, engine):
            assert (await ask(tmp_path, session.api_key)).status_code == 200


async def test_a_folder_that_is_not_the_sockets_own_is_one_clear_line_and_exit_status_1(tmp_path):
    (tmp_path / "door").mkdir()
    (tmp_path / "door" / "secret").touch()
    arguments = ["--port", "0", "--engine", "http://127.0.0.1:1", "--home", str(tmp_path / "home"), "--model", "m"]
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sandboxes.gateway", "--socket", str(tmp_path / "door" / "g.sock"), *arguments),
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await asyncio.wait_for(running.communicate(), 60)
    assert (running.returncode, errors.decode().count("\n")) == (1, 1)
    assert "holds secret too" in errors.decode()
