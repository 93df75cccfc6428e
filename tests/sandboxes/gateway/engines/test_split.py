"""Sessions that keep to a weight version, and the split of new ones between two. Scripted engines behind one gateway."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient, GatewayRefused
from sandboxes.gateway.engines import member as member_module
from sandboxes.gateway.engines.split import Split, fraction
from sandboxes.gateway.scripted.engine import Scripted
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings

USER = {"role": "user", "content": "hi"}
CHALLENGER, CHAMPION = 5, 4


class Fleet:
    """A gateway before an engine that serves the champion and one that serves the challenger."""

    def __init__(self, gateway, champion, challenger, urls, client, http, sdk):
        self.gateway, self.champion, self.challenger, self.urls = gateway, champion, challenger, urls
        self.client, self.http, self.sdk = client, http, sdk

    async def call(self, session, **more):
        sdk = self.sdk.with_options(api_key=session.api_key, max_retries=0)
        return await sdk.chat.completions.create(model="scripted", messages=[USER], **more)

    async def versions(self, session):
        rows = await self.client.calls(session.session_id, episode_id="e", attempt_id="a")
        return {version for row in rows if row.token_status == "exact" for version in row.weight_versions}

    async def order(self, what, **body):
        answer = await self.http.post(f"/engines/{what}", json=body or None)
        return answer.status_code, answer.json()

    async def split(self, share, **more):
        return await self.order("split", champion=CHAMPION, challenger=CHALLENGER, share=share, **more)


@asynccontextmanager
async def fleet(tmp_path):
    champion, challenger = Scripted(["hello"], weight_version="4"), Scripted(["hello"], weight_version="5")
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(one.serve()) for one in (champion, challenger)]
        gateway = Gateway(Settings(engine=urls[0], more_engines=urls[1:], home=tmp_path, model="scripted"))
        url = await stack.enter_async_context(serving(gateway.app()))
        client = await stack.enter_async_context(GatewayClient(url, gateway.operator_key))
        headers = {"Authorization": f"Bearer {gateway.operator_key}"}
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=url, headers=headers, timeout=30))
        sdk = await stack.enter_async_context(AsyncOpenAI(base_url=f"{url}/v1", api_key="none"))
        yield Fleet(gateway, champion, challenger, urls, client, http, sdk)


@pytest.fixture(autouse=True)
def told_at_once(monkeypatch):
    monkeypatch.setattr(member_module, "START_LIFE_S", 0.0)


def test_a_share_of_the_sessions_is_the_challengers_by_their_ids_alone():
    ids = [f"episode-{n}-{n}" for n in range(4000)]
    tenth = Split(champion=4, challenger=5, share=0.1, until=2**40)
    half = tenth.model_copy(update={"share": 0.5})
    chosen = {one for one in ids if tenth.version(one) == 5}
    assert 330 < len(chosen) < 470
    assert chosen < {one for one in ids if half.version(one) == 5}  # a larger share moves nobody back
    assert {tenth.model_copy(update={"until": 0.0}).version(one) for one in ids} == {4}  # whoever watched it died
    assert 0 <= fraction("a") < 1


async def test_whole_sessions_stay_on_their_version(tmp_path):
    async with fleet(tmp_path) as it:
        early = await it.client.start_session("early")
        assert (await it.split(0.5))[0] == 200
        sessions = [await it.client.start_session(f"t{n}") for n in range(12)]
        for _ in range(2):
            await asyncio.gather(*(it.call(session) for session in [early, *sessions]))
        seen = [await it.versions(session) for session in sessions]
        assert all(len(versions) == 1 for versions in seen)
        due = [{5} if fraction(session.session_id) < 0.5 else {4} for session in sessions]
        assert seen == due
        assert {4} in seen and {5} in seen
        assert await it.versions(early) == {4}  # those from before are the champion's
        reports = [await it.client.report(session.session_id) for session in sessions]
        assert [{report["version"]} for report in reports] == due
        now = (await it.http.get("/engines")).json()
        fifth = due.count({5})
        assert (now["split"]["share"], now["sessions"]) == (0.5, {"4": 12 - fifth, "5": fifth})
        await it.client.end_session(sessions[due.index({5})])
        assert (await it.http.get("/engines")).json()["sessions"]["5"] == fifth - 1
        assert (await it.order("unsplit"))[1]["split"] is None


async def test_an_evaluation_names_its_version_and_gets_no_other(tmp_path):
    async with fleet(tmp_path) as it:
        for version in (4, 5):
            session = await it.client.start_session("eval", version=version)
            for _ in range(3):
                await it.call(session)
            assert await it.versions(session) == {version}
        with pytest.raises(
            GatewayRefused, match=r"no engine serves weight version 6: .* serves '4', .* serves '5'"
        ) as no:
            await it.client.start_session("eval", version=6)
        assert (no.value.status, no.value.code) == (409, "version_not_served")
        with pytest.raises(GatewayRefused, match="demonstration samples nothing"):
            await it.client.start_session("d", mode="demonstration", version=4)


async def test_a_session_whose_version_nobody_serves_any_more_is_told_so_and_gets_no_other(tmp_path):
    async with fleet(tmp_path) as it:
        session = await it.client.start_session("eval", version=5)
        await it.call(session)
        await it.order("pause", url=it.urls[1])
        it.challenger.weight_version = "4"  # as a deployment does
        await it.order("pause", url=it.urls[1], for_s=0)
        with pytest.raises(
            openai.InternalServerError, match="serves weight version 4, and this session is of version 5"
        ) as no:
            await it.call(session)
        assert no.value.code == "version_not_served"
        assert await it.versions(session) == {5}


async def test_an_answer_by_other_weights_is_never_silent(tmp_path):
    """Weights that somebody swaps without the gateway's knowledge."""
    async with fleet(tmp_path) as it:
        session = await it.client.start_session("eval", version=5)
        await it.call(session)
        it.challenger.weight_version = "9"
        with pytest.raises(openai.InternalServerError, match="is of weight version 5 and the engine answered with 9"):
            await it.call(session)
        rows = await it.client.calls(session.session_id, episode_id="e", attempt_id="a")
        assert [(row.status, row.token_status) for row in rows] == [("ok", "exact"), ("infra_error", "missing")]


async def test_the_first_call_after_a_swap_meets_no_cache_of_the_weights_before(tmp_path):
    async with fleet(tmp_path) as it:
        session = await it.client.start_session("t", version=5)
        await it.call(session)
        assert it.challenger.asked[-1]["cache_salt"] == "weights-5"
        await it.order("pause", url=it.urls[1])
        it.challenger.weight_version = "6"
        await it.order("pause", url=it.urls[1], for_s=0)
        await it.call(await it.client.start_session("t", version=6))
        assert it.challenger.asked[-1]["cache_salt"] == "weights-6"


async def test_a_swap_is_seen_by_every_process_before_its_next_call(tmp_path):
    async with fleet(tmp_path) as it:
        twin = Gateway(it.gateway.settings)
        async with serving(twin.app()) as url, GatewayClient(url, twin.operator_key) as other:
            await other.start_session("t", version=5)
            await it.order("pause", url=it.urls[1])
            it.challenger.weight_version = "6"
            await it.order("pause", url=it.urls[1], for_s=0)
            with pytest.raises(GatewayRefused, match="no engine serves weight version 5"):
                await other.start_session("t", version=5)


async def test_a_challenger_that_is_gone_gets_no_new_session(tmp_path):
    async with fleet(tmp_path) as it:
        await it.split(1.0)
        await it.order("doubted", url=it.urls[1])
        session = await it.client.start_session("t")
        await it.call(session)
        assert await it.versions(session) == {4}


async def test_a_split_that_makes_no_sense_is_refused_with_the_reason(tmp_path):
    async with fleet(tmp_path) as it:
        status, body = await it.order("split", champion=4, challenger=7, share=0.1)
        assert (status, body["error"]["code"]) == (409, "version_not_served")
        assert "no engine serves weight version 7, which would get sessions" in body["error"]["message"]
        assert (await it.order("split", champion=4, challenger=7, share=0.0))[0] == 200  # before it is deployed
        assert (await it.order("split", champion=4, challenger=4, share=0.1))[0] == 400
        assert (await it.split(1.5))[0] == 400
        assert (await it.split(0.1, forever=True))[0] == 400


async def test_while_one_engine_is_swapped_the_others_take_its_calls(tmp_path):
    async with fleet(tmp_path) as it:
        await it.order("pause", url=it.urls[1])
        sessions = [await it.client.start_session(f"t{n}") for n in range(4)]
        await asyncio.wait_for(asyncio.gather(*(it.call(session) for session in sessions)), 10)
        assert (it.champion.generated, it.challenger.generated) == (4, 0)
