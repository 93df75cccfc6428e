"""What waits and what fails at once, where a session is to be started."""

import asyncio
import json

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from sandboxes.gateway.client import GatewayClient, GatewayRefused, GatewayUnavailable
from sandboxes.gateway.server.listen import serving


async def test_room_is_waited_for_and_taken_when_there_is_some(start):
    async with start(max_sessions=1) as stack:
        first = await stack.client.start_session("t")
        waiting = asyncio.create_task(stack.client.start_session("t", wait_s=30))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        await stack.client.end_session(first)
        assert (await waiting).session_id == "t-2"


async def test_who_does_not_wait_is_refused_and_who_waited_in_vain_is_told_for_what(start):
    async with start(max_sessions=1) as stack:
        await stack.client.start_session("t")
        with pytest.raises(GatewayRefused, match=r"429.*--max-sessions"):
            await stack.client.start_session("t")
        with pytest.raises(GatewayUnavailable, match=r"waited 0 s for: 1 sessions are open"):
            await stack.client.start_session("t", wait_s=1)


async def test_weights_that_are_being_swapped_are_waited_for(start):
    async with start(weight_version="default") as stack:
        waiting = asyncio.create_task(stack.client.start_session("t", wait_s=30))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        stack.engine.weight_version = "7"
        await asyncio.wait_for(waiting, 20)


@pytest.mark.parametrize(
    ("status", "code", "waits"),
    [(429, None, True), (409, "weights_unlabelled", True), (503, "engine_paused", True), (503, "engine_stale", True),
     (409, None, False), (503, "max_mask_fraction", False), (503, None, False), (401, None, False), (400, None, False)],
)  # fmt: skip
async def test_only_what_passes_by_itself_is_waited_for(status, code, waits):
    asked = []

    async def start_session(request: Request) -> JSONResponse:
        asked.append(json.loads(await request.body()))
        if len(asked) == 1:
            return JSONResponse({"error": {"message": "no", "code": code}}, status, {"Retry-After": "0"})
        return JSONResponse({"session_id": "t-1", "api_key": "a", "reward_key": "b"})

    app = Starlette(routes=[Route("/rl/start_session", start_session, methods=["POST"])])
    async with serving(app) as url, GatewayClient(url, "key") as client:
        if waits:
            assert (await client.start_session("t", wait_s=5)).session_id == "t-1"
            assert asked[0] == asked[1]
        else:
            with pytest.raises((GatewayRefused, GatewayUnavailable), match=f"{status}"):
                await client.start_session("t", wait_s=5)
            assert len(asked) == 1


async def test_an_answer_that_is_no_json_is_told_as_it_is():
    async def broken(_: Request) -> JSONResponse:
        return JSONResponse(["a proxy's page"], 502)

    app = Starlette(routes=[Route("/health", broken)])
    async with serving(app) as url, GatewayClient(url) as client:
        with pytest.raises(GatewayUnavailable, match=r"502 from /health.*proxy"):
            await client.health()
