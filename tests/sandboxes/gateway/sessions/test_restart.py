"""`kill -9` between and during calls: no answered call is lost, sessions go on, and a journal that fails masks the episode."""

import asyncio
import random
import re
import resource
import signal
import socket
import sqlite3
import sys
from contextlib import asynccontextmanager
from functools import partial
from itertools import count

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from sandboxes.gateway.client import GatewayClient, GatewayUnavailable
from sandboxes.gateway.scripted.engine import Scripted

USER = {"role": "user", "content": "hi"}


@asynccontextmanager
async def process(home, engine_url, *, port=0, largest_file=None):
    """A gateway process of its own, which may write no file beyond a size; gives it and a client. Killed at the end."""
    arguments = ["--port", str(port), "--engine", engine_url, "--home", str(home), "--model", "scripted"]
    limit = largest_file and partial(resource.setrlimit, resource.RLIMIT_FSIZE, (largest_file, largest_file))
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sandboxes.gateway", *arguments, stdout=asyncio.subprocess.PIPE, preexec_fn=limit
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


async def test_a_call_cut_by_kill_9_is_an_infrastructure_failure_and_a_retry_takes_its_place(tmp_path, dispatched):
    async with Scripted(["x" * 500], token_delay_s=0.02).serve() as engine_url:
        async with process(tmp_path, engine_url) as (running, client):
            session = await client.start_session("t")
            body = {"messages": [USER], "max_tokens": 400}
            cut = asyncio.create_task(ask(client, session, **body))
            await dispatched(tmp_path)
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


async def test_a_gateway_that_is_told_to_stop_stops_and_records_what_it_cut(tmp_path, dispatched):
    async with Scripted(["x" * 500], token_delay_s=0.02).serve() as engine_url:
        async with process(tmp_path, engine_url) as (running, client):
            session = await client.start_session("t")
            cut = asyncio.create_task(ask(client, session, messages=[USER]))
            await dispatched(tmp_path)
            running.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(running.wait(), 20) in (0, -signal.SIGTERM)
            await asyncio.gather(cut, return_exceptions=True)
        async with process(tmp_path, engine_url) as (_, client):
            [row] = await client.calls(session.session_id, episode_id="e", attempt_id="a")
            assert row.status in ("infra_error", "cancelled")


def a_free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def echo(prompt):
    """An answer that no other prompt has."""
    return "you said " + re.findall(r"agent \d+ turn \d+", prompt)[-1] + " " + "x" * 20


async def converse(sdk, agent, told):
    """One agent: a conversation, turn after turn, every second one streamed. `told`: prompt -> (id, text) as received."""
    messages = []
    for turn in count():
        prompt = f"agent {agent} turn {turn}"
        messages.append({"role": "user", "content": prompt})
        if turn % 2:
            told[prompt] = await streamed(sdk, messages, prompt)
        else:
            answer = await sdk.chat.completions.create(model="scripted", messages=messages)  # the SDK tries again
            told[prompt] = answer.id, answer.choices[0].message.content
        messages.append({"role": "assistant", "content": told[prompt][1]})


async def streamed(sdk, messages, key):
    """A stream that broke is asked for again with its idempotency key, as an agent that streams has to."""
    while True:
        chunks = []
        try:
            asked = await sdk.chat.completions.create(
                model="scripted",
                messages=messages,
                stream=True,
                extra_headers={"Idempotency-Key": key.replace(" ", "-")},
            )
            async for chunk in asked:
                chunks.append(chunk)
        except (openai.APIError, httpx.TransportError):
            await asyncio.sleep(0.2)
            continue
        if chunks and chunks[-1].choices and chunks[-1].choices[0].finish_reason:
            return chunks[0].id, "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


class Moment:
    """Waits for something that happens in a gateway under load, and then for a moment more or not."""

    def __init__(self, home):
        self.generations = 0
        self.home = home
        self.draw = random.Random()

    def reply(self, prompt):
        self.generations += 1
        return echo(prompt)

    async def comes(self):
        if self.draw.random() < 0.6:  # an answer was journalled just now; its client may not have it yet
            await self.more(self.answered, by=self.draw.randint(1, 6))
        else:  # anywhere in a call
            await self.more(lambda: self.generations, by=self.draw.randint(1, 8))
            await asyncio.sleep(self.draw.uniform(0, 0.15))

    def answered(self):
        with sqlite3.connect(f"file:{self.home}/gateway/journal.db?mode=ro", uri=True) as db:
            return db.execute("select count(*) from answers").fetchone()[0]

    async def more(self, number, by=1):
        wanted = number() + by
        async with asyncio.timeout(60):
            while number() < wanted:  # noqa: ASYNC110 - what is counted happens in other processes
                await asyncio.sleep(0)


async def test_kill_9_at_random_points_under_load_loses_no_answered_call_and_doubles_none(tmp_path, monkeypatch):
    monkeypatch.setattr(openai._base_client, "MAX_RETRY_DELAY", 0.3)  # the SDK's own pauses, cut short
    moment, port, told = Moment(tmp_path), a_free_port(), {}
    async with Scripted(moment.reply, token_delay_s=0.001, merge=True).serve() as engine_url:
        async with process(tmp_path, engine_url, port=port) as (running, client):
            sessions = [await client.start_session(f"agent-{n}") for n in range(4)]
            shared = AsyncOpenAI(base_url=client.openai_base_url, api_key="none", max_retries=100)
            agents = [
                asyncio.create_task(converse(shared.with_options(api_key=session.api_key), n, told))
                for n, session in enumerate(sessions)
            ]
            await moment.comes()
            running.send_signal(signal.SIGKILL)
        for _ in range(4):
            async with process(tmp_path, engine_url, port=port) as (running, _):
                await moment.comes()
                running.send_signal(signal.SIGKILL)
        async with process(tmp_path, engine_url, port=port) as (_, client):
            await moment.more(lambda: len(told), by=8)  # every session goes on
            for agent in agents:
                agent.cancel()
            await asyncio.gather(*agents, return_exceptions=True)
            rows = [
                row
                for session in sessions
                for row in await client.calls(session.session_id, episode_id="e", attempt_id="a")
            ]
        await shared.close()
    answered = {}
    for row in rows:
        if row.status == "ok":
            prompt = re.findall(r"agent \d+ turn \d+", row.request_messages)[-1]
            answered.setdefault(prompt, []).append(row)
    assert {prompt: len(found) for prompt, found in answered.items() if len(found) > 1} == {}  # none doubled
    for prompt, (call_id, text) in told.items():
        [row] = answered[prompt]  # none lost
        assert (row.call_id, row.token_status) == (call_id, "exact")
        assert text == echo(prompt)
    by_id = {row.call_id: row for row in rows}
    for prompt, [row] in answered.items():
        agent, turn = re.findall(r"\d+", prompt)
        parent = by_id.get(row.parent_call_id)
        before = re.findall(r"agent \d+ turn \d+", parent.request_messages)[-1] if parent else None
        assert before == (f"agent {agent} turn {int(turn) - 1}" if int(turn) else None)  # one chain each


async def test_a_full_disk_masks_the_episode_and_never_fails_the_agent(tmp_path):
    async with Scripted(["fine"]).serve() as engine_url:
        async with process(tmp_path, engine_url, largest_file=400_000) as (running, client):
            good, session = await client.start_session("t"), await client.start_session("t")
            await ask(client, good, messages=[USER])
            async with AsyncOpenAI(base_url=client.openai_base_url, api_key=session.api_key, max_retries=0) as sdk:
                for n in range(40):
                    messages = [{"role": "user", "content": "x" * 2000}]
                    answer = await sdk.chat.completions.create(model="scripted", messages=messages, seed=n)
                    assert answer.choices[0].message.content == "fine"
            told = await client.report(session.session_id)
            assert "journal" in told["masked"] and told["delivered_fraction"] == 0
            rows = await client.calls(session.session_id, episode_id="e", attempt_id="a")
            assert len(rows) == 40 and {row.token_status for row in rows} == {"missing"}
            with pytest.raises(GatewayUnavailable, match="journal cannot be written"):
                await client.start_session("t")
            running.send_signal(signal.SIGKILL)
        async with process(tmp_path, engine_url) as (_, client):  # there is room again: the mask is not forgotten
            assert (await client.report(session.session_id))["masked"]
            assert (await client.report(good.session_id))["masked"] is None
            await ask(client, good, messages=[USER], seed=1)
            assert len(await client.calls(good.session_id, episode_id="e", attempt_id="a")) == 2
        assert not list((tmp_path / "gateway" / "masks").iterdir())


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
