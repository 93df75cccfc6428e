"""A client that does not finish its request, or does not read its answer, holds a place for a bounded time only."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp
import httpx
import pytest

from sandboxes.gateway.server.bounded import Bounded
from sandboxes.gateway.server.listen import config, serving

HEAD = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(Bounded, "REQUEST_S", 0.3)
    monkeypatch.setattr(Bounded, "STALLED_S", 0.3)


@asynccontextmanager
async def connected(url):
    there = urlsplit(url)
    reader, writer = await asyncio.open_connection(there.hostname, there.port, limit=1024)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def echo(scope, receive, send):
    """Answers with the body's length once it is there; says on its way out what it saw."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        return await send({"type": "lifespan.shutdown.complete"})
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        size += len(message["body"])
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    return await send({"type": "http.response.body", "body": b"%2d" % size})


@pytest.mark.parametrize("sent", [b"", b"POST / HT", HEAD, HEAD + b"12345"])
async def test_a_request_that_does_not_end_is_refused_as_too_slow(sent):
    async with serving(echo) as url, connected(url) as (reader, writer):
        writer.write(sent)
        answer = await asyncio.wait_for(reader.read(), 10)
    assert answer.startswith(b"HTTP/1.1 408 ")


async def test_a_request_that_ends_in_time_is_answered_however_long_the_answer_takes():
    async def slow(scope, receive, send):
        if scope["type"] == "http":
            await asyncio.sleep(1.0)
        await echo(scope, receive, send)

    async with serving(slow) as url, connected(url) as (reader, writer):
        writer.write(HEAD + b"0123456789")
        answer = await asyncio.wait_for(reader.readuntil(b"10"), 10)
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_who_does_not_read_an_answer_loses_it_and_the_application_is_told():
    told = asyncio.Event()

    async def endless(scope, receive, send):
        if scope["type"] == "lifespan":
            return await echo(scope, receive, send)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        gone = asyncio.create_task(receive())
        while not gone.done() or gone.result()["type"] != "http.disconnect":
            if gone.done():
                gone = asyncio.create_task(receive())
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
            await asyncio.sleep(0)
        return told.set()

    async with serving(endless) as url, connected(url) as (_, writer):
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert await asyncio.wait_for(told.wait(), 10)


@pytest.fixture
def small_buffers(monkeypatch):
    """Little of an answer is kept for who does not read it."""
    made = Bounded.connection_made

    def connection_made(self, transport):
        made(self, transport)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        transport.set_write_buffer_limits(high=1024)

    monkeypatch.setattr(Bounded, "connection_made", connection_made)


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_that_nobody_reads_is_cut_and_what_was_generated_by_then_is_on_record(
    start, small_buffers, stream
):
    """A call that still runs is cancelled; one that has ended was recorded before it was told."""
    async with start(["x" * 15_000], token_delay_s=0.005 if stream else 0.0) as stack:
        session = await stack.client.start_session("t")
        asked = {"model": stack.model, "messages": [{"role": "user", "content": "hi"}]}
        # With log-probs a stream is long before its call ends.
        body = json.dumps({**asked, "stream": stream, "logprobs": stream}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {session.api_key}\r\n"
        with socket.socket() as client:
            client.settimeout(5)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            client.connect((urlsplit(stack.url).hostname, urlsplit(stack.url).port))
            client.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            async with asyncio.timeout(30):
                while not (rows := await stack.rows(session)):  # noqa: ASYNC110 - asked over HTTP
                    await asyncio.sleep(0.05)
            await asyncio.sleep(1.0)
            read = b""
            while part := client.recv(65536):
                read += part
    assert 0 < len(read) < 15_000
    [row] = rows
    told = (row.status, row.token_status, len(row.completion_token_ids) == 15_001)
    assert told == (("cancelled", "missing", False) if stream else ("ok", "exact", True))
    assert row.completion_token_ids


async def test_who_reads_slowly_keeps_the_connection():
    parts = 40

    async def long(scope, receive, send):
        if scope["type"] == "lifespan":
            return await echo(scope, receive, send)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for left in reversed(range(parts)):
            await send({"type": "http.response.body", "body": b"x" * 262_144, "more_body": left > 0})
        return None

    async with serving(long) as url, connected(url) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        read = 0
        while part := await asyncio.wait_for(reader.read(262_144), 10):
            read += part.count(b"x")
            await asyncio.sleep(0.01)
    assert read == parts * 262_144


async def test_the_client_is_the_first_to_let_go_of_an_idle_connection():
    async with httpx.AsyncClient() as ours, aiohttp.ClientSession() as theirs:
        kept = [ours._transport._pool._keepalive_expiry, theirs.connector._keepalive_timeout]
    assert all(0 < one < config(echo).timeout_keep_alive for one in kept)
