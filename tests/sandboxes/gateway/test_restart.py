"""`kill -9` between and during calls: no answered call is lost, sessions go on, and a journal that fails masks the episode."""

import asyncio
import signal
import sqlite3
import sys
from contextlib import asynccontextmanager

import httpx
import pytest
from openai import AsyncOpenAI

from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.scripted import Scripted

USER = {"role": "user", "content": "hi"}


@asynccontextmanager
async def process(home, engine_url):
    """A gateway process of its own; gives it and a client. Killed at the end."""
    arguments = ["--port", "0", "--engine", engine_url, "--home", str(home), "--model", "scripted"]
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sandboxes.gateway", *arguments, stdout=asyncio.subprocess.PIPE
    )
    try:
        line = (await asyncio.wait_for(running.stdout.readline(), 30)).decode()
        assert line.startswith("gateway: http://"), line
        async with GatewayClient(line.split()[1], (home / "keys" / "operator").read_text().strip()) as client:
            yield running, client
    finally:
        if running.returncode is None:
            running.send_signal(signal.SIGKILL)
        await running.wait()


async def ask(client, session, **body):
    async with AsyncOpenAI(base_url=client.openai_base_url, api_key=session.api_key, max_retries=0) as sdk:
        return await sdk.chat.completions.create(model="scripted", **body)


async def test_answered_calls_survive_kill_9_and_the_conversation_continues_as_one_chain(tmp_path):
    async with Scripted(["first answer", "second"], merge=True).serve() as engine_url:
        async with process(tmp_path, engine_url) as (running, client):
            session = await client.start_session("t")
            answer = await ask(client, session, messages=[USER])
            running.send_signal(signal.SIGKILL)  # right after the answer
        async with process(tmp_path, engine_url) as (_, client):
            messages = [USER, answer.choices[0].message.model_dump(), USER]
            await ask(client, session, messages=messages)
            other = await client.start_session("t")
            assert other.session_id != session.session_id
            one, two = await client.calls(session.session_id, episode_id="e", attempt_id="a")
            assert one.call_id == answer.id
            assert two.parent_call_id == one.call_id
            known = one.prompt_token_ids + one.completion_token_ids
            assert two.prompt_token_ids[: len(known)] == known
            await client.end_session(session)
            await client.set_reward(session, 1.0)


async def test_a_call_cut_by_kill_9_is_an_infrastructure_failure_and_a_retry_takes_its_place(tmp_path):
    async with Scripted(["x" * 500], token_delay_s=0.02).serve() as engine_url:
        async with process(tmp_path, engine_url) as (running, client):
            session = await client.start_session("t")
            body = {"messages": [USER], "max_tokens": 400}
            cut = asyncio.create_task(ask(client, session, **body))
            await asyncio.sleep(0.5)
            running.send_signal(signal.SIGKILL)
            await running.wait()
            with pytest.raises(Exception, match="onnection"):
                await cut
        async with process(tmp_path, engine_url) as (_, client):
            headers = {"Authorization": f"Bearer {session.api_key}", "x-stainless-retry-count": "1"}
            async with httpx.AsyncClient(base_url=client.base_url, headers=headers, timeout=30) as http:
                body = {"model": "scripted", "messages": [USER], "max_tokens": 4}
                assert (await http.post("/v1/chat/completions", json=body)).status_code == 200
            cut_row, retried = await client.calls(session.session_id, episode_id="e", attempt_id="a")
            assert (cut_row.status, cut_row.token_status) == ("infra_error", "missing")
            assert (retried.status, retried.token_status, retried.fork_reason) == ("truncated", "exact", "root")


async def test_a_gateway_that_is_told_to_stop_stops_and_records_what_it_cut(tmp_path):
    async with Scripted(["x" * 500], token_delay_s=0.02).serve() as engine_url:
        async with process(tmp_path, engine_url) as (running, client):
            session = await client.start_session("t")
            cut = asyncio.create_task(ask(client, session, messages=[USER]))
            await asyncio.sleep(0.5)
            running.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(running.wait(), 20) in (0, -signal.SIGTERM)
            await asyncio.gather(cut, return_exceptions=True)
        async with process(tmp_path, engine_url) as (_, client):
            [row] = await client.calls(session.session_id, episode_id="e", attempt_id="a")
            assert row.status in ("infra_error", "cancelled")


@pytest.mark.parametrize("broken", ["drop table calls", "alter table calls rename to calls_away"])
async def test_a_journal_that_fails_masks_the_episode_and_never_fails_the_agent(start, tmp_path, broken):
    async with start(["first", "second"]) as stack:
        session = await stack.client.start_session("t")
        client = stack.openai(session)
        first = await client.chat.completions.create(model=stack.model, messages=[USER])
        with sqlite3.connect(tmp_path / "gateway" / "journal.db") as other:
            other.execute(broken)
        messages = [USER, first.choices[0].message.model_dump(), USER]
        second = await client.chat.completions.create(model=stack.model, messages=messages)
        assert second.choices[0].message.content == "second"
        await stack.client.end_session(session)
        assert [row.token_status for row in await stack.rows(session)] == ["missing", "missing"]


async def test_a_gap_in_the_journal_masks_the_session_after_a_restart(start, tmp_path):
    async with start() as stack:
        session = await stack.client.start_session("t")
        for n in range(3):
            await stack.openai(session).chat.completions.create(model=stack.model, messages=[USER], seed=n)
    with sqlite3.connect(tmp_path / "gateway" / "journal.db") as other:
        other.execute("delete from calls where call_index = 1")
    async with start() as stack:
        assert [row.token_status for row in await stack.rows(session)] == ["missing", "missing"]


async def run(*arguments):
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sandboxes.gateway", *arguments, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await asyncio.wait_for(running.communicate(), 30)
    return running.returncode, errors.decode()


async def test_a_taken_port_and_a_foreign_engine_are_one_clear_line_and_exit_status_1(start, tmp_path):
    async with start() as stack:
        port = stack.url.rpartition(":")[2]
        common = ["--home", str(tmp_path / "other"), "--model", "m"]
        status, errors = await run("--port", port, "--engine", "http://127.0.0.1:1", *common)
        assert (status, errors.count("\n"), f":{port}" in errors, "--port" in errors) == (1, 1, True, True)
        status, errors = await run("--port", "0", "--engine", "http://10.1.2.3:8000", *common)
        assert (status, errors.count("\n"), "--allow-upstream 10.1.2.3" in errors) == (1, 1, True)
        assert not list(tmp_path.glob("other*"))  # nothing was left behind
