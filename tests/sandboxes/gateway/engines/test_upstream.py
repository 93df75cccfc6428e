"""The address that was checked is the address connected to."""

import asyncio
import socket
import threading
from contextlib import asynccontextmanager

import pytest

from sandboxes.gateway.engines.guard import Guard
from sandboxes.gateway.engines.upstream import Answer, Upstream
from sandboxes.gateway.engines.waiting import CURRENT, Waiting
from sandboxes.gateway.errors import EngineRefused, EngineSilent, EngineTrouble
from sandboxes.gateway.scripted.engine import serve

NAME = "engine.example"


@pytest.fixture
def resolver(monkeypatch):
    """Give NAME these addresses: a list that a test may change while it runs. Counts how often it is asked."""
    real, answers, asked = socket.getaddrinfo, [], []

    def resolve(host, port, *args, **kwargs):
        if host != NAME:
            return real(host, port, *args, **kwargs)
        asked.append(host)
        if not answers:
            raise socket.gaierror(-3, "Temporary failure in name resolution")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in answers]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return answers, asked


@pytest.mark.parametrize(
    "address",
    [
        "10.1.2.3",
        "192.168.0.9",
        "169.254.169.254",
        "127.0.0.1",
        "100.64.0.1",
        "0.0.0.0",
        "::ffff:169.254.169.254",
        "fe80::1",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "::a9fe:a9fe",
    ],
)
def test_a_listed_name_may_not_resolve_to_a_special_address_unless_that_or_its_network_is_listed(resolver, address):
    resolver[0][:] = ["93.184.216.34", address]
    with pytest.raises(ValueError, match=f"--allow-upstream {address}"):
        Guard(f"http://{NAME}:8000", [NAME]).check()
    plain = address.removeprefix("::ffff:")
    network = f"{plain}/112" if ":" in plain else f"{plain}/24"
    for entry in (plain, network):
        assert address in Guard(f"http://{NAME}:8000", [NAME, entry]).check()


def test_a_name_that_is_not_listed_must_be_this_machine(resolver):
    resolver[0][:] = ["93.184.216.34"]
    with pytest.raises(ValueError, match=f"--allow-upstream {NAME}"):
        Guard(f"http://{NAME}:8000").check()
    resolver[0][:] = ["127.0.0.1"]
    assert Guard(f"http://{NAME}:8000").check() == ["127.0.0.1"]
    assert Guard("http://localhost:8000", ["localhost"]).check()


def test_an_engine_url_with_a_password_in_it_is_refused():
    with pytest.raises(ValueError, match="password"):
        Guard("http://user:secret@127.0.0.1:8000")


@asynccontextmanager
async def upstream(url, guard=None, deadline_s=5.0):
    one = Upstream(url, guard or Guard(url), deadline_s=deadline_s, connections=4)
    yield one
    await one.close()


@asynccontextmanager
async def called_by_name(answers):
    """A scripted engine's URL with a name in it that resolves to its address, and a guard of that URL."""
    answers[:] = ["127.0.0.1"]
    async with serve(["x"]) as url:
        at = f"http://{NAME}:{url.rpartition(':')[2]}"
        yield at, Guard(at)


async def test_the_name_is_resolved_once_and_what_was_checked_is_connected_to(resolver):
    answers, asked = resolver
    async with called_by_name(answers) as (at, guard):
        async with upstream(at, guard) as first, upstream(at, guard) as second:
            assert (await first.get("/version")).status == 200
            answers[:] = [
                "10.9.9.9"
            ]  # rebound: a new connection within the minute still goes where it was checked to go
            assert (await second.get("/version")).status == 200
        assert len(asked) == 1


async def test_the_engine_is_told_the_name_it_was_asked_by(resolver):
    resolver[0][:] = ["127.0.0.1"]
    heads = []

    async def answer(reader, writer):
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    at = f"http://{NAME}:{server.sockets[0].getsockname()[1]}"
    async with server, upstream(at) as one:
        assert (await one.get("/")).status == 204
    assert f"host: {at.removeprefix('http://')}".encode() in heads[0].lower()


async def test_a_name_that_is_rebound_to_a_refused_address_is_not_connected_to(resolver, monkeypatch):
    answers, _ = resolver
    async with called_by_name(answers) as (at, guard), upstream(at, guard) as first, upstream(at, guard) as second:
        assert (await first.get("/version")).status == 200
        answers[:] = ["169.254.169.254"]
        monkeypatch.setattr(guard, "_until", 0.0)  # the minute is over
        assert (await first.get("/version")).status == 200  # on the connection that is there
        for _ in range(2):  # the refusal is not remembered as an address
            with pytest.raises(EngineTrouble, match=r"169\.254\.169\.254"):
                await second.get("/version")
        answers[:] = ["127.0.0.1"]
        assert (await second.get("/version")).status == 200


async def test_an_engine_that_moved_is_found_at_its_new_address_at_once(resolver):
    answers, asked = resolver
    answers[:] = ["127.0.0.2"]
    async with serve(["x"]) as url:  # on 127.0.0.1, and nobody is on the other address
        at = f"http://{NAME}:{url.rpartition(':')[2]}"
        async with upstream(at) as one:
            with pytest.raises(EngineTrouble, match="does not answer"):
                await one.get("/version")
            answers[:] = ["127.0.0.1"]
            assert (await one.get("/version")).status == 200
        assert len(asked) == 2


async def test_a_name_that_cannot_be_resolved_for_a_while_keeps_its_checked_addresses(resolver, monkeypatch):
    answers, _ = resolver
    async with called_by_name(answers) as (at, guard), upstream(at, guard) as one, upstream(at, guard) as other:
        assert (await one.get("/version")).status == 200
        answers.clear()
        monkeypatch.setattr(guard, "_until", 0.0)
        assert (await other.get("/version")).status == 200
        answers[:] = ["10.9.9.9"]  # back, and rebound: now it is refused
        monkeypatch.setattr(guard, "_until", 0.0)
        async with upstream(at, guard) as third:
            with pytest.raises(EngineTrouble, match=r"10\.9\.9\.9"):
                await third.get("/version")


async def test_a_resolver_that_hangs_holds_nobody_up_for_long_and_one_thread(monkeypatch):
    released, threads = threading.Event(), []

    def hang(*_, **__):
        threads.append(threading.current_thread())
        released.wait(20)
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    monkeypatch.setattr("sandboxes.gateway.engines.guard.RESOLVE_S", 0.1)
    async with upstream(f"http://{NAME}:8000") as one:
        async with asyncio.timeout(5):
            told = await asyncio.gather(*(one.get("/version") for _ in range(4)), return_exceptions=True)
        released.set()
    assert {type(error) for error in told} == {EngineTrouble}
    assert "does not resolve within" in str(told[0])
    assert len(threads) == 1


def test_connections_of_one_engine_go_nowhere_else():
    with pytest.raises(ValueError, match="not the engine's host"):
        Upstream("http://elsewhere.example:1", Guard("http://localhost:1"), deadline_s=1, connections=1)


async def test_of_several_addresses_the_one_that_answers_is_used():
    async with serve(["x"]) as url:
        at = f"http://localhost:{url.rpartition(':')[2]}"
        guard = Guard(at)
        guard._good, guard._until = ["127.0.0.2", "127.0.0.1"], float("inf")
        async with upstream(at, guard) as one:
            assert (await one.get("/version")).status == 200


async def test_an_engine_that_hangs_is_told_from_one_that_is_gone():
    async def hang(reader, writer):
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    at = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with upstream(at, deadline_s=0.2) as one:
        async with server:
            with pytest.raises(EngineSilent, match="in time"):
                await one.get("/health")
        with pytest.raises(EngineTrouble, match="does not answer") as gone:
            await one.get("/health")
        assert not isinstance(gone.value, EngineSilent)


async def test_what_json_cannot_carry_is_the_callers_fault():
    async with upstream("http://127.0.0.1:1") as one:
        with pytest.raises(EngineRefused, match="64-bit"):
            await one.post("/", {"seed": 2**70})


async def test_waiting_for_the_engine_is_counted_for_the_call_that_waits():
    waiting = Waiting()
    async with serve(["x"]) as url, upstream(url) as one:
        CURRENT.set(waiting)
        await one.get("/version")
        assert 0 < waiting.seconds < 1
    with waiting, waiting:
        before = waiting.seconds
    assert waiting.seconds - before < 0.01


@pytest.mark.parametrize("raw", [b"<html>", b"[]", b"{}", b"null"])
def test_an_answer_that_does_not_tell_what_was_asked_is_the_engines_trouble_and_names_the_route(raw):
    with pytest.raises(EngineTrouble, match="/version is no object with 'version'"):
        Answer(200, "/version", raw).told("version")
