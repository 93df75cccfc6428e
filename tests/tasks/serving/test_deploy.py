"""A deployment under traffic: what the gateway's clients see, what is recorded, and that no engine stays paused."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time

import httpx
import pytest
from openai import AsyncOpenAI

from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.scripted.engine import Scripted
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings
from tasks.serving.deploy import deploy, probe
from tasks.serving.engine import UNKNOWN_VERSION, Engine
from tasks.serving.errors import EngineError
from tasks.serving.gate import Gate
from tasks.training.folder import PROBE
from tasks.training.probe_set import write

LONG = {
    "type": "array",
    "items": {"type": "integer"},
    "minItems": 2000,
}  # as an answer's schema: it ends with the limit


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@contextlib.asynccontextmanager
async def gateway_before(url, home, model):
    """Its client, an OpenAI client without a key, a gate to it."""
    gateway = Gateway(Settings(engine=url, home=home, model=model, call_deadline_s=120))
    async with (
        serving(gateway.app()) as gateway_url,
        GatewayClient(gateway_url, gateway.operator_key) as client,
        AsyncOpenAI(base_url=client.openai_base_url, api_key="none", max_retries=0, timeout=120) as sdk,
    ):
        with Gate(gateway_url, home / "keys" / "operator") as gate:
            yield client, sdk, gate


async def swapped(engine, url, home, new):
    """What was recorded while `new` was deployed as the next version, and what a stream of long and one of short calls got.

    The engine has its own weights again afterwards.
    """
    old, number, model = engine.folder(), engine.served_version(), engine.models()[0]
    async with gateway_before(url, home, model) as (client, sdk, gate):
        session, first = await client.start_session("t"), await client.start_session("first")
        asking = sdk.with_options(api_key=session.api_key).chat.completions
        form = {"type": "json_schema", "json_schema": {"name": "long", "schema": LONG}}
        wanted = {"model": model, "messages": [{"role": "user", "content": "Who wrote it?"}], "max_tokens": 1500}
        # The engine compiles the form once, which takes longer than a deployment.
        begun = sdk.with_options(api_key=first.api_key).chat.completions
        await streamed(begun, **{**wanted, "max_tokens": 4}, response_format=form)
        deploying = asyncio.create_task(asyncio.to_thread(deploy, engine, new, number + 1, gate))

        async def meanwhile(**more):
            """Calls one after another: one of them runs when the weights are swapped, or waits for it."""
            contents = []
            while not deploying.done():
                contents.append(await streamed(asking, **{**wanted, **more}))
            return contents

        try:
            long, short = await asyncio.gather(meanwhile(response_format=form), meanwhile(max_tokens=4))
            proof = await deploying
        finally:
            await asyncio.wait([deploying])
            engine.reload(old, number)
            engine.label(number)
        assert proof.passed, proof.reason
        return await client.calls(session.session_id, episode_id="e", attempt_id="a"), long, short


@pytest.mark.engine
async def test_calls_go_on_through_a_swap_and_every_token_has_the_version_it_was_sampled_with(
    engine_url, home, tmp_path, perturbed
):
    with Engine(engine_url) as engine:
        number, new = engine.served_version(), perturbed(engine.folder(), tmp_path / "new")
        write(new / PROBE, probe(new, engine.context()))  # as a trainer leaves it: the deployment then takes a moment
        for attempt in range(3):  # the gate may shut between two long calls; then nothing spans the swap
            rows, long, short = await swapped(engine, engine_url, home / str(attempt), new)
            assert {row.token_status for row in rows} == {"exact"}
            others = [row for row in rows if len(row.logprobs) <= 4]
            assert len(rows) == len(others) + len(long) and all(content.startswith("[") for content in long)
            # They were made one after another, so one at most was under way when the gate shut and may span both versions;
            # those that waited at the gate have the new one alone: none began between reload and label.
            assert len(others) == len(short)
            sampled_with = [version for row in others for version in row.weight_versions]
            assert sampled_with == sorted(sampled_with)
            assert sum(len(set(row.weight_versions)) > 1 for row in others) <= 1
            assert set(others[-1].weight_versions) == {number + 1}
            spanning = [row for row in rows if len(row.logprobs) == 1500 and len(set(row.weight_versions)) > 1]
            if spanning:
                break
    (versions,) = [row.weight_versions for row in spanning]
    at = versions.index(number + 1)
    assert versions == [number] * at + [number + 1] * (1500 - at)
    assert 0 < at < 1500


async def streamed(completions, **wanted):
    chunks = await completions.create(**wanted, stream=True)
    return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])


@pytest.mark.engine
def test_a_deployer_that_is_killed_leaves_an_engine_that_runs_and_whose_weights_nobody_believes(engine_url, home):
    with Engine(engine_url) as engine:
        number = engine.served_version()
        script = (
            "import sys, time; from tasks.serving.engine import Engine\n"
            "Engine._swap = lambda *_: print('paused', flush=True) or time.sleep(60)\n"
            "Engine(sys.argv[1]).reload(sys.argv[2], 1)"
        )
        command = [sys.executable, "-c", script, engine_url, str(engine.folder())]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ, start_new_session=True) as deployer:
            assert deployer.stdout.readline() == b"paused\n"
            assert paused(engine_url)
            os.killpg(deployer.pid, signal.SIGKILL)
        try:
            deadline = time.monotonic() + 30
            while paused(engine_url):
                assert time.monotonic() < deadline, "the engine was left paused"
                time.sleep(0.1)
            assert engine.served_version() == UNKNOWN_VERSION
            assert len(engine.score([5, 77, 300])) == 2
        finally:
            engine.label(number)


def paused(url: str) -> bool:
    return bool(httpx.get(f"{url}/is_paused", timeout=30).json()["is_paused"])


async def test_a_gate_holds_calls_back_and_lets_them_on_whatever_happens(home):
    async with (
        Scripted(["hello"]).serve() as url,
        gateway_before(url, home, "scripted") as (client, sdk, gate),
    ):
        session = await client.start_session("t")
        asking = sdk.with_options(api_key=session.api_key).chat.completions
        wanted = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}]}

        def swap():
            with gate.held(url, 60.0):
                time.sleep(0.4)
                raise EngineError("the swap failed")

        swapping = asyncio.create_task(asyncio.to_thread(swap))
        await asyncio.sleep(0.2)
        call = asyncio.create_task(asking.create(**wanted))
        await asyncio.sleep(0.1)
        assert not call.done()
        with pytest.raises(EngineError, match="the swap failed"):
            await swapping
        assert (await call).choices[0].message.content == "hello"
        await asyncio.to_thread(gate.proven, url, 1)
        assert await asyncio.to_thread(gate.engines) == [url]
        with pytest.raises(EngineError, match=r"refused POST /engines/proven: 409.*not '2'"):
            await asyncio.to_thread(gate.proven, url, 2)


def test_a_gateway_that_is_not_there_holds_nothing_back(home):
    with Gate("http://127.0.0.1:9", home / "keys" / "operator") as gate, gate.held("http://127.0.0.1:8", 1.0):
        gate.proven("http://127.0.0.1:8", 1)
        assert gate.engines() == []
