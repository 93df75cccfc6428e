"""What was ordered about engines outlives the gateway: a real process, killed and started again."""

import signal
from contextlib import asynccontextmanager

import httpx
import openai
import pytest

from sandboxes.gateway.scripted.engine import Scripted
from tests.sandboxes.gateway.sessions.test_restart import USER, ask, process, run


@asynccontextmanager
async def gateway(home, engine_url):
    """A gateway process, its client, and a way to give its orders. Killed at the end."""
    async with process(home, engine_url) as (running, client):
        headers = {"Authorization": f"Bearer {(home / 'keys' / 'operator').read_text().strip()}"}
        async with httpx.AsyncClient(base_url=client.base_url, headers=headers, timeout=30) as http:

            async def order(what, **body):
                answer = await http.post(f"/engines/{what}", json=body)
                assert answer.status_code == 200, answer.text

            async def engines():
                answer = (await http.get("/engines")).json()
                return {one["url"]: one["state"] for one in answer["engines"]}, answer["split"]

            yield running, client, order, engines


async def test_an_engine_whose_weights_nobody_knows_is_not_believed_by_a_gateway_that_was_killed(tmp_path):
    engine = Scripted(["hello"], weight_version="7")
    async with engine.serve() as url:
        async with gateway(tmp_path, url) as (running, client, _, _):
            session = await client.start_session("t")
            await ask(client, session, messages=[USER])
            running.send_signal(signal.SIGKILL)
            await running.wait()
        engine.restart()  # while no gateway is there to see it
        engine.weight_version = "7"  # a label alone is no proof
        async with gateway(tmp_path, url) as (_, client, order, _):
            with pytest.raises(openai.InternalServerError, match="was started again") as failure:
                await ask(client, session, messages=[USER], seed=1)
            assert failure.value.code == "engine_stale"
            await order("proven", url=url, version=7)
            await ask(client, session, messages=[USER], seed=2)
            rows = await client.calls(session.session_id, episode_id="e", attempt_id="a")
            assert [row.token_status for row in rows] == ["exact", "exact"]  # what was refused was no call


async def test_pauses_drainings_and_splits_outlive_a_killed_gateway_and_engines_are_those_it_is_started_with(tmp_path):
    champion, challenger = Scripted(["hello"], weight_version="4"), Scripted(["hello"], weight_version="5")
    async with champion.serve() as url, challenger.serve() as other:
        async with gateway(tmp_path, url) as (_, _, order, engines):
            await order("add", url=other)
            await order("split", champion=4, challenger=5, share=0.5, for_s=300)
            await order("drain", url=url)
            await order("pause", url=url, for_s=300)
            states, split = await engines()
            assert states == {url: "paused", other: "serving"}
            await order("remove", url=url)
        async with gateway(tmp_path, url) as (_, _, order, engines):
            assert await engines() == ({url: "paused"}, split)
            await order("pause", url=url, for_s=0)
            assert (await engines())[0] == {url: "draining"}


async def test_orders_that_cannot_be_read_are_one_clear_line_and_exit_status_1(tmp_path):
    (tmp_path / "gateway").mkdir()
    (tmp_path / "gateway" / "engines.json").write_text('{"engines": 1}')
    common = ["--home", str(tmp_path), "--model", "m", "--engine", "http://127.0.0.1:1"]
    status, errors = await run("--port", "0", *common)
    assert (status, errors.count("\n"), "engines.json is no file of orders" in errors) == (1, 1, True), errors
