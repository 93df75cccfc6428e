"""The first signal drains, the second ends at once; a head that never ends is cut."""

import asyncio
import signal
import socket
import sys
from contextlib import asynccontextmanager

import httpx
import pytest

from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.scripted.engine import Scripted

BODY = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}]}


@asynccontextmanager
async def process(home, engine_url, *arguments):
    command = ["--port", "0", "--engine", engine_url, "--home", str(home), "--model", "scripted", *arguments]
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sandboxes.gateway", *command, stdout=asyncio.subprocess.PIPE
    )
    try:
        line = (await asyncio.wait_for(running.stdout.readline(), 30)).decode()
        assert line.startswith("gateway: http"), line
        async with GatewayClient(line.split()[1], (home / "keys" / "operator").read_text().strip()) as client:
            yield running, client
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


async def post(client, session, **body):
    headers = {"Authorization": f"Bearer {session.api_key}"}
    async with httpx.AsyncClient(timeout=60) as http:
        return await http.post(f"{client.base_url}/v1/chat/completions", json={**BODY, **body}, headers=headers)


async def rows_after(home, engine_url, session):
    async with process(home, engine_url) as (_, client):
        return await client.calls(session.session_id, episode_id="e", attempt_id="a")


async def test_a_running_call_is_finished_new_ones_are_a_503_to_try_again_and_rewards_are_still_taken(
    tmp_path, dispatched
):
    async with Scripted(["x" * 60], token_delay_s=0.05).serve() as engine_url:
        async with process(tmp_path, engine_url, "--drain", "30") as (running, client):
            session = await client.start_session("t")
            first = asyncio.create_task(post(client, session))
            await dispatched(tmp_path)
            running.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.3)
            refused = await post(client, session)
            assert (refused.status_code, refused.headers["x-should-retry"]) == (503, "true")
            assert refused.json()["error"]["type"] == "stopping_error"
            with pytest.raises(Exception, match="stopping"):
                await client.start_session("t")
            assert (await first).status_code == 200
            assert await asyncio.wait_for(running.wait(), 20) == 0
        [row] = await rows_after(tmp_path, engine_url, session)
        assert (row.status, row.token_status) == ("ok", "exact")


async def test_what_runs_at_the_deadline_is_cut_with_a_503_and_recorded_with_what_it_had(tmp_path, dispatched):
    async with Scripted(["x" * 2000], token_delay_s=0.02).serve() as engine_url:
        async with process(tmp_path, engine_url, "--drain", "0.5") as (running, client):
            session = await client.start_session("t")
            cut = asyncio.create_task(post(client, session))
            await dispatched(tmp_path)  # one after the other: rows come in the order of dispatch
            streamed = asyncio.create_task(post(client, session, stream=True, seed=1))
            await dispatched(tmp_path, 2)
            running.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(running.wait(), 20) == 0
            assert ((await cut).status_code, (await cut).headers["x-should-retry"]) == (503, "true")
            assert "stopped" in (await streamed).text.rpartition("data:")[2]
        whole, stream = await rows_after(tmp_path, engine_url, session)
        assert {whole.status, stream.status} == {"infra_error"}
        assert stream.completion_token_ids


async def test_a_second_signal_ends_it_at_once(tmp_path, dispatched):
    async with Scripted(["x" * 2000], token_delay_s=0.05).serve() as engine_url:
        async with process(tmp_path, engine_url, "--drain", "60") as (running, client):
            session = await client.start_session("t")
            cut = asyncio.create_task(post(client, session))
            await dispatched(tmp_path)
            running.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.3)
            assert running.returncode is None
            running.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(running.wait(), 3) != 0
            await asyncio.gather(cut, return_exceptions=True)
        [row] = await rows_after(tmp_path, engine_url, session)
        assert row.status == "infra_error"


async def test_a_head_that_never_ends_is_cut(start):
    async with start() as stack:
        host, port = stack.url.removeprefix("http://").split(":")

        def send():
            with socket.create_connection((host, int(port)), timeout=20) as client:
                client.sendall(b"GET /health HTTP/1.1\r\nx-long: ")
                sent = 0
                try:
                    while sent < 32 << 20:
                        sent += client.send(b"x" * 65536)
                except OSError:
                    pass
                return sent

        assert await asyncio.to_thread(send) < 32 << 20
        assert (await stack.http.get("/health")).status_code == 200
