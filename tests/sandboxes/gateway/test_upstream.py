"""The address that was checked is the address connected to."""

import socket

import httpx
import pytest

from sandboxes.gateway.scripted import serve
from sandboxes.gateway.upstream import Guard, GuardedTransport
from sandboxes.gateway.waiting import CURRENT, Waiting

NAME = "engine.example"


@pytest.fixture
def resolver(monkeypatch):
    """Give NAME these addresses: a list that a test may change while it runs. Counts how often it is asked."""
    real, answers, asked = socket.getaddrinfo, [], []

    def resolve(host, port, *args, **kwargs):
        if host != NAME:
            return real(host, port, *args, **kwargs)
        asked.append(host)
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


def client(guard):
    return httpx.AsyncClient(transport=GuardedTransport(guard, httpx.AsyncHTTPTransport()))


async def test_the_name_is_resolved_once_and_the_checked_address_is_connected_to_with_the_name_as_host(resolver):
    answers, asked = resolver
    answers[:] = ["127.0.0.1"]
    async with serve(["x"]) as url:
        port = url.rpartition(":")[2]
        guard = Guard(f"http://{NAME}:{port}")
        async with client(guard) as http:
            first = await http.get(f"http://{NAME}:{port}/version")
            answers[:] = ["10.9.9.9"]  # rebound: what is asked within the minute still goes where it was checked to go
            second = await http.get(f"http://{NAME}:{port}/version")
        assert (first.status_code, second.status_code, len(asked)) == (200, 200, 1)
        assert first.request.url.host == "127.0.0.1"
        assert first.request.headers["host"] == f"{NAME}:{port}"


async def test_a_name_that_is_rebound_to_a_refused_address_is_not_connected_to(resolver, monkeypatch):
    answers, _ = resolver
    answers[:] = ["127.0.0.1"]
    async with serve(["x"]) as url:
        port = url.rpartition(":")[2]
        guard = Guard(f"http://{NAME}:{port}")
        async with client(guard) as http:
            assert (await http.get(f"http://{NAME}:{port}/version")).status_code == 200
            answers[:] = ["169.254.169.254"]
            monkeypatch.setattr(guard, "_until", 0.0)  # the minute is over
            with pytest.raises(httpx.ConnectError, match=r"169\.254\.169\.254"):
                await http.get(f"http://{NAME}:{port}/version")


async def test_a_transport_of_one_engine_sends_nothing_elsewhere():
    async with client(Guard("http://localhost:1")) as http:
        with pytest.raises(httpx.ConnectError, match="not the engine's host"):
            await http.get("http://127.0.0.1:1/")


async def test_of_several_addresses_the_one_that_answers_is_used():
    async with serve(["x"]) as url:
        port = url.rpartition(":")[2]
        guard = Guard(f"http://localhost:{port}")
        guard._good, guard._until = ["127.0.0.2", "127.0.0.1"], float("inf")
        async with client(guard) as http:
            assert (await http.get(f"http://localhost:{port}/version")).status_code == 200
        assert guard._good[0] == "127.0.0.1"


async def test_waiting_for_the_engine_is_counted_for_the_call_that_waits():
    waiting = Waiting()
    async with serve(["x"]) as url, client(Guard(url)) as http:
        CURRENT.set(waiting)
        await http.get(f"{url}/version")
        assert 0 < waiting.seconds < 1
    with waiting.wait(), waiting.wait():
        before = waiting.seconds
    assert waiting.seconds - before < 0.01
