"""Fixed paths are looked up before Starlette's router, which tries route after route, is asked."""

from collections.abc import Iterable
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from sandboxes.gateway.http.endpoints import Endpoint


class Front:
    """ASGI middleware. What it does not know, wrong methods too, goes on to the router."""

    def __init__(self, app: ASGIApp, endpoints: Iterable[Endpoint]) -> None:
        self._app = app
        self._fixed = {(one.method, one.path): one for one in endpoints if "{" not in one.path}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._fixed.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        response = await found.endpoint(Request(scope, receive, send))
        await response(scope, receive, send)


class QuickJson(JSONResponse):
    """JSON by orjson; by Starlette's own encoder where that refuses, as with integers beyond 64 bits."""

    def render(self, content: Any) -> bytes:
        try:
            return orjson.dumps(content)
        except TypeError:
            return super().render(content)
