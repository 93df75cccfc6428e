"""Several scripted engines behind one gateway, and short ways to use them."""

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
from openai import AsyncOpenAI

from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.engines.pool import rank
from sandboxes.gateway.scripted.engine import Scripted
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings

USER = {"role": "user", "content": "hi"}


class Fleet:
    """A gateway before scripted engines, by URL, and short ways to use it."""

    def __init__(self, engines, gateway, client, http, sdk):
        self.engines, self.gateway, self.client, self.http, self.sdk = engines, gateway, client, http, sdk

    async def call(self, session, **more):
        sdk = self.sdk.with_options(api_key=session.api_key, max_retries=more.pop("max_retries", 0))
        return await sdk.chat.completions.create(model="scripted", messages=[USER], **more)

    async def order(self, what, url, **more):
        answer = await self.http.post(f"/engines/{what}", json={"url": url, **more})
        return answer.status_code, answer.json()

    async def states(self):
        return {one["url"]: one["state"] for one in (await self.http.get("/engines")).json()["engines"]}

    async def until(self, url, state, deadline_s=10.0):
        end = time.monotonic() + deadline_s
        while (await self.states())[url] != state:
            assert time.monotonic() < end, f"{url} is not {state}: {await self.states()}"
            await asyncio.sleep(0.05)

    def home(self, session):
        """The engine that a session's calls go to while all can serve."""
        return max(self.engines, key=lambda url: rank(session.session_id, url))

    def generated(self):
        return {url: engine.generated for url, engine in self.engines.items()}


@asynccontextmanager
async def fleet(tmp_path, *scripted, **settings):
    """`fleet(tmp_path, Scripted(...), Scripted(...))`; two plain engines where none is given."""
    scripted = scripted or (Scripted(["hello"]), Scripted(["hello"]))
    async with AsyncExitStack() as stack:
        engines = {await stack.enter_async_context(one.serve()): one for one in scripted}
        first, *more = engines
        gateway = Gateway(Settings(engine=first, more_engines=more, home=tmp_path, model="scripted", **settings))
        url = await stack.enter_async_context(serving(gateway.app()))
        client = await stack.enter_async_context(GatewayClient(url, gateway.operator_key))
        headers = {"Authorization": f"Bearer {gateway.operator_key}"}
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=url, headers=headers, timeout=30))
        sdk = await stack.enter_async_context(AsyncOpenAI(base_url=f"{url}/v1", api_key="none"))
        yield Fleet(engines, gateway, client, http, sdk)
