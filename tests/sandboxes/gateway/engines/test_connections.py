"""One exchange over one connection, whatever the engine sends."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from sandboxes.gateway.engines import connections
from sandboxes.gateway.engines.guard import Guard
from sandboxes.gateway.engines.upstream import Upstream
from sandboxes.gateway.errors import EngineSilent, EngineTrouble


@asynccontextmanager
async def engine(*pieces, close=False, times=None):
    """An upstream of an engine that answers every request with these bytes, piece by piece."""
    connected = []

    async def answer(reader, writer):
        connected.append(writer)
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.005)
                if close:
                    break
        except asyncio.IncompleteReadError:
            pass
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    one = Upstream(url, Guard(url), deadline_s=5.0 if times is None else times, connections=2)
    async with server:
        yield one, connected
        await one.close()


async def test_answers_in_pieces_chunks_and_after_a_100_are_put_together_and_the_connection_is_used_again():
    whole = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n[1",
        b"\r\n3\r\n,2]\r\n0\r\n\r",
        b"\n",
    )
    async with engine(*whole) as (one, connected):
        for _ in range(3):
            assert (await one.get("/")).json() == [1, 2]
        assert len(connected) == 1


async def test_an_answer_without_a_length_ends_with_its_connection():
    async with engine(b"HTTP/1.1 200 OK\r\n\r\n[1", b",2]", close=True) as (one, connected):
        for _ in range(2):
            assert (await one.get("/")).json() == [1, 2]
        assert len(connected) == 2


@pytest.mark.parametrize(
    "sent",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200",
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ],
)
async def test_half_an_answer_and_what_is_no_http_are_the_engines_trouble(sent):
    async with engine(sent, close=True) as (one, _):
        with pytest.raises(EngineTrouble, match="does not answer"):
            await one.get("/")


async def test_a_stream_that_breaks_gives_what_came_and_then_the_trouble():
    async with engine(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\na\nb\n\r\n", close=True) as (one, _):
        lines = []
        with pytest.raises(EngineTrouble):
            async for line in one.lines("/", {}):
                lines.append(line)
        assert lines == [b"a", b"b"]


async def test_a_stream_that_falls_silent_is_over_at_the_deadline():
    async with engine(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\na\n", times=0.2) as (one, _):
        lines = []
        with pytest.raises(EngineSilent):
            async for line in one.lines("/", {}):
                lines.append(line)
        assert lines == [b"a"]


async def test_an_engine_whose_stream_nobody_reads_is_made_to_wait(monkeypatch):
    monkeypatch.setattr("sandboxes.gateway.engines.upstream.HELD_BYTES", 1 << 16)
    size, sent = 64 << 20, 0

    async def answer(reader, writer):
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        line = b"x" * 1023 + b"\n"
        while sent < size:
            writer.write(line)
            sent += len(line)
            await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    one = Upstream(url, Guard(url), deadline_s=60, connections=1)
    async with server:
        lines = one.lines("/", {})
        await anext(lines)
        await asyncio.sleep(0.3)
        assert sent < size // 2
        rest = 1
        async for _ in lines:
            rest += 1
        assert rest == size // 1024
        await one.close()


async def test_a_connection_whose_answer_was_left_unread_is_not_used(monkeypatch):
    monkeypatch.setattr("sandboxes.gateway.engines.upstream.HELD_BYTES", 4)
    async with engine(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\na\n", b"b\nc\nd\n") as (one, connected):
        lines = one.lines("/", {})
        assert await anext(lines) == b"a"
        await asyncio.sleep(0.05)  # all of it has come, and more than is held
        await lines.aclose()
        assert len((await one.get("/")).raw) == 8
        assert len(connected) == 2


async def test_who_gives_up_closes_the_connection_so_that_the_engine_stops():
    gone = asyncio.Event()

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        assert not await reader.read()
        gone.set()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    one = Upstream(url, Guard(url), deadline_s=60, connections=1)
    async with server:
        asking = asyncio.create_task(one.get("/"))
        await asyncio.sleep(0.1)
        asking.cancel()
        await asyncio.wait_for(gone.wait(), 5)
        await one.close()


async def test_who_waits_for_a_connection_waits_no_longer_than_the_deadline():
    async def hang(reader, writer):
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    one = Upstream(url, Guard(url), deadline_s=30, connections=1)
    async with server:
        first = asyncio.create_task(one.get("/"))
        await asyncio.sleep(0.05)
        with pytest.raises(EngineSilent):
            await one.get("/", deadline_s=0.1)
        first.cancel()
        await asyncio.wait([first])
        await one.close()


async def test_a_connection_that_the_engine_closed_meanwhile_is_not_used():
    async with engine(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", close=True) as (one, connected):
        await one.get("/")
        await asyncio.sleep(0.05)
        await one.get("/")
        assert len(connected) == 2


async def test_a_connection_is_not_used_when_it_was_idle_for_long(monkeypatch):
    monkeypatch.setattr(connections, "IDLE_S", 0.05)
    async with engine(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok") as (one, connected):
        await one.get("/")
        await asyncio.sleep(0.1)
        await one.get("/")
        assert len(connected) == 2
