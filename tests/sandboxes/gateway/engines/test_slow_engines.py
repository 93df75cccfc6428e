"""An engine that is slow to say how it is costs the sessions of the others nothing."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest

from sandboxes.gateway.engines import member as member_module
from sandboxes.gateway.engines import pool as pool_module
from sandboxes.gateway.scripted.engine import Scripted
from tests.sandboxes.gateway.engines.fleets import fleet

SOON_S = 1.0  # a look takes up to 2 s here, and a call some milliseconds


class Holding(Scripted):
    """Does not say what it serves while `held`, as vLLM does not during a swap."""

    held = False

    def app(self):
        whole = super().app()

        async def app(scope, receive, send):
            while self.held and scope.get("path") == "/weight_info":  # noqa: ASYNC110 - another task changes it
                await asyncio.sleep(0.02)
            await whole(scope, receive, send)

        return app


@pytest.fixture(autouse=True)
def slow(monkeypatch):
    """Only calls and starts of sessions look at engines."""
    monkeypatch.setattr(member_module, "LOOK_S", 2.0)
    monkeypatch.setattr(pool_module, "LOOK_EVERY_S", 3600.0)


@asynccontextmanager
async def two_engines(tmp_path):
    """A fleet of a quick engine and one that can be `held`, with sessions of both that have called, and the latter's URL."""
    engine, held = Scripted(["hello"]), Holding(["hello"])
    async with fleet(tmp_path, engine, held) as it:
        url = {one: url for url, one in it.engines.items()}[held]
        yield it, engine, held, url, await spread(it)


async def spread(it):
    """Sessions of both engines, two each, that have called."""
    of = {url: [] for url in it.engines}
    while min(map(len, of.values())) < 2:
        session = await it.client.start_session("t")
        of[it.home(session)].append(session)
    sessions = [session for some in of.values() for session in some[:2]]
    await asyncio.gather(*(it.call(session) for session in sessions))
    return sessions


async def all_soon(it, sessions):
    """Each can call, and new ones can start."""
    for session in sessions:
        begun = time.monotonic()
        await it.call(session)
        await it.client.start_session("new")
        assert time.monotonic() - begun < SOON_S


async def test_a_swap_of_one_engine_holds_nobody_up(tmp_path):
    async with two_engines(tmp_path) as (it, engine, held, url, sessions):
        await it.order("pause", url)
        held.held = True
        before = engine.generated
        await all_soon(it, sessions)
        assert engine.generated == before + len(sessions)


async def test_a_stale_and_slow_engine_holds_nobody_up_and_is_believed_once_it_is_proven(tmp_path):
    async with two_engines(tmp_path) as (it, _, held, url, sessions):
        await it.order("doubted", url)
        await it.client.start_session("looked at since it was doubted")
        await asyncio.gather(*(it.call(session) for session in sessions))
        held.held = True
        await all_soon(it, sessions)
        held.held, before = False, held.generated
        assert (await it.order("proven", url, version=1))[1]["state"] == "serving"
        await asyncio.gather(*(it.call(session) for session in sessions))
        assert held.generated > before


async def test_calls_that_wait_for_a_stale_engine_wait_for_one_look_at_it(tmp_path):
    held = Holding(["hello"], weight_version="default")
    async with fleet(tmp_path, held) as it:
        shown = {"role": "assistant", "content": "so"}
        session = await it.client.start_session("t", mode="demonstration")
        await it.call(session, extra_body={"demonstration": shown})
        [member] = it.gateway.engines.members
        held.held = True
        begun = time.monotonic()
        await asyncio.gather(*(member.sure(stale=True) for _ in range(4)))
        assert time.monotonic() - begun < 2 * 2.0 + SOON_S
        held.held = False


async def test_an_engine_that_got_its_label_takes_the_next_call(tmp_path):
    async with fleet(tmp_path, Scripted(["hello"], weight_version="default")) as it:
        [(url, engine)] = it.engines.items()
        with pytest.raises(Exception, match="label them first"):
            await it.client.start_session("t")
        assert await it.states() == {url: "stale"}
        engine.weight_version = "3"
        await it.call(await it.client.start_session("t"))
        assert engine.generated == 1
