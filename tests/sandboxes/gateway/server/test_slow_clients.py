"""A client that does not finish its request, or does not read its answer, holds a place for a bounded time only."""

import asyncio
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
