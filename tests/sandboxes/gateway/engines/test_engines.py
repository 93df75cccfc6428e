"""Which engine takes a session's calls: affinity, trouble, restarts, pauses. Several scripted engines behind one gateway."""

import asyncio
import time
from contextlib import AsyncExitStack, suppress

import openai
import pytest

from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayUnavailable
from sandboxes.gateway.engines import member as member_module
from sandboxes.gateway.engines import pool as engines_module
from sandboxes.gateway.engines.guard import Guard
from sandboxes.gateway.engines.member import Breaker
from sandboxes.gateway.engines.pool import answered, rank
from sandboxes.gateway.engines.upstream import Upstream
from sandboxes.gateway.errors import EngineTrouble
from sandboxes.gateway.scripted.engine import Scripted
from sandboxes.gateway.server.listen import serving
from tests.sandboxes.gateway.engines.fleets import fleet


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Engines are looked at more often than in earnest."""
    monkeypatch.setattr(engines_module, "LOOK_EVERY_S", 0.2)
    monkeypatch.setattr(member_module, "START_LIFE_S", 0.0)


def test_an_engine_that_comes_or_goes_moves_only_its_share_of_the_sessions():
    urls = [f"http://engine-{n}:8000" for n in range(5)]
    sessions = [f"episode-{n}-{n}" for n in range(2000)]
    four = {one: max(urls[:4], key=lambda url: rank(one, url)) for one in sessions}
    five = {one: max(urls, key=lambda url: rank(one, url)) for one in sessions}
    moved = [one for one in sessions if four[one] != five[one]]
    assert {five[one] for one in moved} == {urls[4]}
    assert all(300 < list(five.values()).count(url) < 500 for url in urls)


async def test_a_session_keeps_to_one_engine_and_sessions_are_spread(tmp_path):
    async with fleet(tmp_path) as it:
        expected = dict.fromkeys(it.engines, 0)
        for number in range(8):
            session = await it.client.start_session(f"t{number}")
            for _ in range(2):
                await it.call(session)
            expected[it.home(session)] += 2
        assert it.generated() == expected
        assert min(expected.values()) > 0


async def test_a_call_in_trouble_is_a_503_and_its_retry_goes_to_the_next_engine_with_exact_tokens(tmp_path):
    async with fleet(tmp_path) as it:
        session = await it.client.start_session("t")
        await it.call(session)
        home = it.home(session)
        [other] = [url for url in it.engines if url != home]
        it.engines[home].failures.append("500")
        with pytest.raises(openai.InternalServerError, match="EngineDeadError") as failure:
            await it.call(session)
        assert failure.value.response.headers["x-should-retry"] == "true"
        await it.call(session)
        assert it.generated() == {home: 1, other: 1}
        rows = await it.client.calls(session.session_id, episode_id="e", attempt_id="a")
        assert [row.token_status for row in rows] == ["exact", "missing", "exact"]
        assert rows[0].prompt_token_ids == rows[2].prompt_token_ids


async def test_an_engine_that_is_gone_is_broken_and_its_sessions_go_on_elsewhere(tmp_path):
    async with AsyncExitStack() as stack:
        gone = await stack.enter_async_context(Scripted(["hello"]).serve())
        async with fleet(tmp_path) as it:
            assert (await it.order("add", gone))[0] == 200
            it.engines[gone] = Scripted([])
            sessions = [await it.client.start_session(f"t{n}") for n in range(12)]
            [session, *_] = [one for one in sessions if it.home(one) == gone]
            await it.call(session)
            await stack.aclose()
            answer = await it.call(session, max_retries=2)
            assert answer.choices[0].message.content == "hello"
            await it.until(gone, "broken")
            listed = {one["url"]: one for one in (await it.http.get("/engines")).json()["engines"]}
            assert "does not answer" in listed[gone]["reason"]


def test_a_breaker_opens_after_trouble_in_a_row_and_closes_with_one_call_that_is_well(monkeypatch):
    monkeypatch.setattr(Breaker, "OPEN_S", 0.05)
    breaker = Breaker()
    for _ in range(Breaker.THRESHOLD - 1):
        breaker.trouble("a", answered=False, probing=breaker.begin())
    breaker.well()
    for _ in range(Breaker.THRESHOLD):
        assert breaker.lets_through()
        breaker.trouble("a", answered=False, probing=breaker.begin())
    assert not breaker.lets_through()
    time.sleep(0.06)
    assert breaker.lets_through()
    probing = breaker.begin()
    assert probing
    assert not breaker.lets_through()  # one call at a time finds out
    breaker.trouble("a", answered=True, probing=probing)
    assert 0.05 < breaker.left_s <= 0.1
    time.sleep(0.11)
    breaker.give_up(probing=breaker.begin())  # its client left: the next one finds out
    assert breaker.lets_through()
    breaker.begin()
    breaker.well()
    assert breaker.closed


async def test_a_lone_broken_engine_says_when_to_come_back_and_serves_again(tmp_path, monkeypatch):
    monkeypatch.setattr(Breaker, "OPEN_S", 0.5)
    async with fleet(tmp_path, Scripted(["hello"])) as it:
        [(url, engine)] = it.engines.items()
        session, *others = [await it.client.start_session("t") for _ in range(Breaker.WITNESSES)]
        engine.failures.extend(["500"] * (Breaker.THRESHOLD + len(others)))
        for one in [*[session] * Breaker.THRESHOLD, *others]:
            with pytest.raises(openai.InternalServerError, match="EngineDeadError"):
                await it.call(one)
        with pytest.raises(openai.InternalServerError, match=r"failed 5 calls in a row.*EngineDeadError") as failure:
            await it.call(session)
        assert failure.value.response.headers["retry-after"] == "1"
        assert await it.states() == {url: "broken"}
        await asyncio.sleep(0.5)
        assert (await it.call(session)).choices[0].message.content == "hello"
        assert await it.states() == {url: "serving"}


async def test_what_one_client_makes_fail_keeps_nobody_else_from_the_engine(tmp_path):
    async with fleet(tmp_path, Scripted(["hello"])) as it:
        [(url, engine)] = it.engines.items()
        poison, other = [await it.client.start_session(name) for name in "po"]
        for _ in range(3 * Breaker.THRESHOLD):
            engine.failures.append("500")
            with pytest.raises(openai.InternalServerError, match="EngineDeadError"):
                await it.call(poison)
        assert await it.states() == {url: "serving"}
        assert (await it.call(other)).choices[0].message.content == "hello"


async def test_an_engine_that_gives_no_answer_is_in_trouble_whoever_asks(tmp_path):
    async def silent(reader, writer):
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    async def closing(_, writer):
        writer.close()

    for behaviour in (silent, closing):
        async with await asyncio.start_server(behaviour, "127.0.0.1", 0) as server:
            url = "http://127.0.0.1:{1}".format(*server.sockets[0].getsockname())
            upstream = Upstream(url, Guard(url, []), deadline_s=0.3, connections=1)
            with pytest.raises(EngineTrouble) as trouble:
                await upstream.post("/inference/v1/generate", {})
            assert not answered(trouble.value)
            await upstream.close()
    assert answered(EngineTrouble("the engine answered 500"))


async def test_a_request_that_the_engine_refuses_is_no_trouble_of_the_engine(tmp_path):
    async with fleet(tmp_path, Scripted(["hello"], max_model_len=300)) as it:
        session = await it.client.start_session("t")
        for _ in range(2 * Breaker.THRESHOLD):
            with pytest.raises(openai.BadRequestError):
                await it.call(session, temperature=3)
        await it.call(session)


async def test_an_engine_that_was_started_again_gets_no_policy_call_until_it_is_proven(tmp_path):
    async with fleet(tmp_path, Scripted(["hello"], weight_version="7")) as it:
        [(url, engine)] = it.engines.items()
        session, shown = await it.client.start_session("t"), {"role": "assistant", "content": "so"}
        teacher = await it.client.start_session("d", mode="demonstration")
        await it.call(session)
        engine.restart()
        await it.until(url, "stale")
        engine.weight_version = "7"  # a label alone is no proof
        with pytest.raises(openai.InternalServerError, match="was started again") as failure:
            await it.call(session)
        assert failure.value.code == "engine_stale"
        with pytest.raises(GatewayUnavailable, match=f"{url} was started again"):
            await it.client.start_session("t2")
        await it.call(teacher, extra_body={"demonstration": shown})  # samples nothing
        status, body = await it.order("proven", url, version=8)
        assert (status, "labels its weights '7', not '8'" in body["error"]["message"]) == (409, True)
        assert (await it.order("proven", url, version=7))[1]["state"] == "serving"
        await it.call(session)
        assert engine.generated == 2


async def test_sessions_of_a_stale_engine_go_to_another(tmp_path):
    async with fleet(tmp_path) as it:
        session = await it.client.start_session("t")
        home = it.home(session)
        it.engines[home].restart()
        await it.until(home, "stale")
        await it.call(session)
        assert it.engines[home].generated == 0


async def test_without_a_start_time_the_label_that_falls_back_tells_of_the_restart(tmp_path, monkeypatch):
    engine = Scripted(["hello"], weight_version="7")
    monkeypatch.setattr(engines_module.Member, "_start", lambda _: asyncio.sleep(0, "untold"))
    async with fleet(tmp_path, engine) as it:
        [url] = it.engines
        session = await it.client.start_session("t")
        engine.restart()
        await it.until(url, "stale")
        engine.weight_version = "7"
        with pytest.raises(openai.InternalServerError, match="was started again"):
            await it.call(session)
        assert (await it.order("proven", url, version=7))[1]["state"] == "serving"


async def test_a_draining_engine_takes_no_new_session_and_finishes_those_it_has(tmp_path):
    async with fleet(tmp_path) as it:
        old = await it.client.start_session("t")
        await it.call(old)
        home = it.home(old)
        assert (await it.order("drain", home))[1]["state"] == "draining"
        await it.call(old)
        assert it.engines[home].generated == 2
        fresh = [await it.client.start_session(f"n{n}") for n in range(8)]
        for session in fresh:
            await it.call(session)
        assert it.engines[home].generated == 2
        assert (await it.order("resume", home))[1]["state"] == "serving"
        [back, *_] = [session for session in fresh if it.home(session) == home]
        await it.call(back)
        assert it.engines[home].generated == 3


async def test_calls_wait_while_their_engine_is_paused(tmp_path):
    async with fleet(tmp_path, Scripted(["hello"])) as it:
        [(url, engine)] = it.engines.items()
        session = await it.client.start_session("t")
        assert (await it.order("pause", url))[1]["state"] == "paused"
        waiting = asyncio.create_task(it.call(session))
        await asyncio.sleep(0.3)
        assert (waiting.done(), engine.generated) == (False, 0)
        await it.order("resume", url)
        assert (await waiting).choices[0].message.content == "hello"


async def test_the_end_of_a_pause_leaves_a_draining_as_it_is(tmp_path):
    async with fleet(tmp_path, Scripted(["hello"])) as it:
        [url] = it.engines
        await it.order("drain", url)
        await it.order("pause", url)
        assert (await it.order("pause", url, for_s=0))[1]["state"] == "draining"
        assert (await it.order("resume", url))[1]["state"] == "serving"


async def test_a_pause_that_lasts_too_long_is_a_503_that_says_so(tmp_path):
    async with fleet(tmp_path, Scripted(["hello"]), call_deadline_s=0.3) as it:
        [url] = it.engines
        session = await it.client.start_session("t")
        await it.order("pause", url)
        with pytest.raises(
            openai.InternalServerError, match="paused for a weight update; this call waited 0 s"
        ) as failure:
            await it.call(session)
        assert (failure.value.code, failure.value.response.headers["retry-after"]) == ("engine_paused", "5")


async def test_a_pause_ends_by_itself_where_whoever_ordered_it_died(tmp_path):
    async with fleet(tmp_path, Scripted(["hello"])) as it:
        [url] = it.engines
        session = await it.client.start_session("t")
        await it.order("pause", url, for_s=0.3)
        assert (await it.call(session)).choices[0].message.content == "hello"


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (Scripted([], version="scripted-2"), "its version is scripted-2, that of the others scripted-1"),
        (Scripted([], merge=True), "chat template or tokenizer is not that of the others"),
        (Scripted([], model="another"), "does not exist"),
    ],
)
async def test_an_engine_that_is_not_like_the_others_is_refused_with_the_reason(tmp_path, other, reason):
    async with fleet(tmp_path) as it, other.serve() as url:
        status, body = await it.order("add", url)
        assert (status in (409, 503), reason in body["error"]["message"]) == (True, True), body
        assert url not in await it.states()


async def test_an_engine_that_becomes_unlike_the_others_takes_no_call(tmp_path):
    async with fleet(tmp_path) as it:
        session = await it.client.start_session("t")
        home = it.home(session)
        it.engines[home].version = "scripted-2"
        it.engines[home].started += 1  # as after an update
        await it.until(home, "broken")
        await it.call(session)
        assert it.engines[home].generated == 0


async def test_engines_come_and_go_while_sessions_run(tmp_path):
    async with fleet(tmp_path, Scripted(["hello"])) as it, Scripted(["hello"]).serve() as url:
        [first] = it.engines
        assert (await it.order("remove", first))[0] == 400  # the last one
        assert (await it.order("add", url))[1]["state"] == "serving"
        assert (await it.order("add", url))[0] == 409
        await it.order("remove", first)
        assert await it.states() == {url: "serving"}
        await it.call(await it.client.start_session("t"))
        assert it.engines[first].generated == 0


async def test_orders_are_the_operators_alone_and_name_an_engine_there_is(tmp_path):
    async with fleet(tmp_path, Scripted(["hello"])) as it:
        [url] = it.engines
        session = await it.client.start_session("t")
        for key in ("none", session.api_key, session.reward_key):
            headers = {"Authorization": f"Bearer {key}"}
            assert (await it.http.get("/engines", headers=headers)).status_code == 401
            answer = await it.http.post("/engines/drain", json={"url": url}, headers=headers)
            assert answer.status_code == 401
        assert (await it.order("drain", "http://127.0.0.1:1"))[0] == 404
        assert (await it.order("pause", url, for_s=1e9))[0] == 400
        assert (await it.order("add", "http://10.0.0.7:8000"))[0] == 400
        assert await it.states() == {url: "serving"}


async def test_orders_hold_in_every_process(tmp_path):
    async with fleet(tmp_path) as it:
        first, second = it.engines
        twin = Gateway(it.gateway.settings)
        async with serving(twin.app()):
            await it.order("drain", first)
            assert [member.state for member in twin.engines.members] == ["draining", "serving"]
            await it.order("remove", first)
            assert [member.url for member in twin.engines.members] == [second]
