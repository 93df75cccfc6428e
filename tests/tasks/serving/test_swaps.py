"""What becomes of a call in flight when weights are swapped, by mode, on the real engine through the gateway."""

import asyncio
import threading
from contextlib import asynccontextmanager

import httpx
import pytest
from openai import AsyncOpenAI, InternalServerError

from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings
from tasks.serving.engine import Engine

pytestmark = pytest.mark.engine

LONG = {
    "type": "array",
    "items": {"type": "integer"},
    "minItems": 2000,
}  # as an answer's schema: it ends with the limit
TOKENS = 1500  # seconds of generation, also where the test has to wait for a processor


async def generated(engine_url):
    """How many tokens the engine has generated since its start."""
    async with httpx.AsyncClient(base_url=engine_url, trust_env=False) as engine:
        metrics = (await engine.get("/metrics")).text
    lines = [line for line in metrics.splitlines() if line.startswith("vllm:generation_tokens_total")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


class Poised(Engine):
    """Is ready to swap before the call begins, and swaps once that has tokens, however long either takes."""

    def __init__(self, url):
        super().__init__(url)
        self.ready, self.go = threading.Event(), threading.Event()

    def _call(self, method, path, **how):
        if path == "/pause":
            self.ready.set()
            assert self.go.wait(90), "the call has no tokens"
        return super()._call(method, path, **how)


@asynccontextmanager
async def swapped_under(engine_url, tmp_path, swap):
    """Weights that were swapped under a long call: engine, the version before, the call, what is recorded of it, its gateway."""
    with Poised(engine_url) as engine:
        number, model = engine.served_version(), engine.models()[0]
        gateway = Gateway(Settings(engine=engine_url, home=tmp_path, model=model, call_deadline_s=120))
        async with (
            serving(gateway.app()) as url,
            GatewayClient(url, gateway.operator_key) as client,
            AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120) as sdk,
        ):
            session, before = await client.start_session("t"), await generated(engine_url)
            form = {"type": "json_schema", "json_schema": {"name": "long", "schema": LONG}}
            swapping = asyncio.create_task(asyncio.to_thread(engine.reload, engine.folder(), number + 1, swap=swap))
            assert await asyncio.to_thread(engine.ready.wait, 60)
            call = asyncio.create_task(
                sdk.with_options(api_key=session.api_key).chat.completions.create(
                    model=model,
                    messages=[{"role": "user", "content": "Count."}],
                    max_tokens=TOKENS,
                    response_format=form,
                )
            )

            async def rows():
                return await client.calls(session.session_id, episode_id="e", attempt_id="a")

            try:
                async with asyncio.timeout(60):  # it waits for the gateway's probes and the form's compilation
                    while await generated(engine_url) < before + 1:
                        assert not call.done()
                        await asyncio.sleep(0.05)
                engine.go.set()
                await swapping
                await asyncio.to_thread(engine.label, number + 1)  # as a proof does
                yield engine, number, call, rows, gateway
            finally:
                engine.go.set()
                await asyncio.wait([call, swapping])
                await asyncio.to_thread(engine.reload, engine.folder(), number)
                await asyncio.to_thread(engine.label, number)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path / "home"))


async def test_wait_lets_a_call_end_with_the_weights_it_began_with(engine_url, tmp_path):
    async with swapped_under(engine_url, tmp_path, "wait") as (engine, number, call, rows, _):
        await call
        [row] = await rows()
        assert row.weight_versions == [number] * TOKENS
        assert engine.served_version() == number + 1


async def test_abort_ends_a_call_at_once_as_trouble_that_passes_and_counts_against_no_engine(engine_url, tmp_path):
    for attempt in range(6):  # on a busy machine an engine may have ended a call before it hears of the swap
        async with swapped_under(engine_url, tmp_path / str(attempt), "abort") as (_, _, call, rows, gateway):
            await asyncio.wait([call])
            [row] = await rows()
            if call.exception() is not None:
                break
            assert len(row.completion_token_ids) == TOKENS
    with pytest.raises(InternalServerError, match="unfinished, as for a swap of its weights") as failure:
        await call
    assert failure.value.response.headers["x-should-retry"] == "true"
    assert (row.status, row.token_status) == ("infra_error", "missing")
    assert 0 < len(row.completion_token_ids) < TOKENS
    [member] = gateway.engines.members
    assert (member.breaker.closed, member.breaker._troubles) == (True, 0)
