"""A scripted engine and a gateway before it, both served over HTTP in the test's event loop."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from lakehouse.records import Call
from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient, Session
from sandboxes.gateway.scripted.engine import Replies, Scripted
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings


@dataclass
class Stack:
    """Gateway and engine, and short ways to use them."""

    engine: Scripted
    gateway: Gateway
    url: str
    client: GatewayClient
    http: httpx.AsyncClient
    sdk: AsyncOpenAI

    @property
    def model(self) -> str:
        return self.engine.model

    def openai(self, session: Session, *, max_retries: int = 0) -> AsyncOpenAI:
        """OpenAI's own client with the session's key, on one connection pool (a client of its own costs a TLS context)."""
        return self.sdk.with_options(api_key=session.api_key, max_retries=max_retries)

    async def rows(self, session: Session) -> list[Call]:
        return await self.client.calls(session.session_id, episode_id="ep", attempt_id="at")

    async def post(self, path: str, key: str, body: Any = None, **headers: str) -> httpx.Response:
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        return await self.http.post(path, json=body, headers=headers)


@pytest.fixture
def dispatched():
    """Wait until a gateway process has written down so many calls; what runs in another process cannot be asked."""

    async def wait(home: Path, count: int = 1) -> None:
        async with asyncio.timeout(30):
            with sqlite3.connect(home / "gateway" / "journal.db") as db:
                while db.execute("select count(*) from calls").fetchone()[0] < count:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.02)

    return wait


Start = Callable[..., AbstractAsyncContextManager[Stack]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """`async with start(replies, merge=True, max_sessions=2) as stack`: options go to the engine or the settings by name."""

    @asynccontextmanager
    async def starting(replies: Replies = ("hello there",), **options: Any) -> AsyncIterator[Stack]:
        ours = {name: options.pop(name) for name in list(options) if name in Settings.model_fields}
        engine = Scripted(replies, **options)
        async with engine.serve() as engine_url:
            gateway = Gateway(Settings(engine=engine_url, home=tmp_path, model=engine.model, **ours))
            async with (
                serving(gateway.app()) as url,
                GatewayClient(url, gateway.operator_key) as client,
                httpx.AsyncClient(base_url=url, timeout=30, verify=False) as http,
                AsyncOpenAI(base_url=client.openai_base_url, api_key="none") as sdk,
            ):
                yield Stack(engine, gateway, url, client, http, sdk)

    return starting


@pytest.fixture
def one_segment() -> Callable[[list[Call], int], None]:
    """`one_segment(rows, count)` asserts that so many calls are one chain: each prompt begins with all that was before."""

    def check(rows: list[Call], count: int) -> None:
        assert [row.segment for row in rows] == [0] * count
        for earlier, later in pairwise(rows):
            known = earlier.prompt_token_ids + earlier.completion_token_ids
            assert later.prompt_token_ids[: len(known)] == known
            assert later.parent_call_id == earlier.call_id

    return check


@pytest.fixture
async def engine_model(engine_url: str) -> str:
    """The name of the model that the real engine serves; its weights have a registered version's label from here on."""
    async with httpx.AsyncClient(base_url=engine_url, timeout=30) as engine:
        if not (await engine.get("/weight_info")).json()["weight_version"].isdecimal():
            await engine.post("/update_weight_version", json={"new_version": "1"})
        return str((await engine.get("/v1/models")).json()["data"][0]["id"])


@pytest.fixture
def tools() -> list[dict[str, Any]]:
    parameters = {"type": "object", "properties": {"query": {"type": "string"}}}
    return [{"type": "function", "function": {"name": "search", "description": "d", "parameters": parameters}}]


@pytest.fixture
def searching() -> dict[str, Any]:
    """An assistant message with text and two tool calls."""
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "search", "arguments": f'{{"query": "the {what}"}}'}}
        for n, what in enumerate(("é cake", "lake"))
    ]
    return {"role": "assistant", "content": "I look. ", "tool_calls": calls}
