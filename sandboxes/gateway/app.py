"""The HTTP surface: routes, keys, and how a running call meets its client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from sandboxes.gateway import openapi
from sandboxes.gateway.access import Access
from sandboxes.gateway.bodies import read
from sandboxes.gateway.calls import Calls
from sandboxes.gateway.dialects.base import Dialect
from sandboxes.gateway.dialects.chat import Chat
from sandboxes.gateway.endpoints import Endpoint, defect, gateway_error, no_route
from sandboxes.gateway.engine import Engine
from sandboxes.gateway.engines import Engines
from sandboxes.gateway.engines_orders import Orders
from sandboxes.gateway.errors import GatewayError
from sandboxes.gateway.heads import HeadLimits
from sandboxes.gateway.fleet import Fleet
from sandboxes.gateway.journal import Journal
from sandboxes.gateway.meeting import EventStream, outcome, until
from sandboxes.gateway.rl import RL
from sandboxes.gateway.sessions import Sessions
from sandboxes.gateway.settings import Settings, check_upstream

DOCS_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
PAUSE_WAIT_S = 120.0  # how long a call waits for an engine whose weights are being swapped
DIALECTS: dict[str, Dialect] = {"/chat/completions": Chat()}


class Gateway:
    """One process: engine, journal, sessions, routes."""

    def __init__(self, settings: Settings) -> None:
        for url in settings.engines:
            check_upstream(url, settings.allow_upstream)
        self.settings = settings
        self.engines = Engines(
            settings.engines, Orders(settings.orders), self._engine, wait_s=min(settings.call_deadline_s, PAUSE_WAIT_S)
        )
        self.journal = Journal(settings.journal)
        self.sessions = Sessions(self.journal, max_open=settings.max_sessions, idle_s=settings.idle_session_s)
        self.access = Access(settings.operator_key, self.sessions)
        self.rl = RL(self.engines, self.journal, self.sessions, self.access)
        self.fleet = Fleet(self.engines, self.access, settings.allow_upstream)
        self.calls = Calls(
            self.engines,
            self.journal,
            self.sessions,
            max_running=settings.max_calls,
            deadline_s=settings.call_deadline_s,
        )

    @property
    def operator_key(self) -> str:
        return self.access.operator_key

    def _engine(self, url: str) -> Engine:
        settings = self.settings
        return Engine(url, settings.model, deadline_s=settings.call_deadline_s, allow=settings.allow_upstream)

    def app(self) -> Starlette:
        """The ASGI application."""

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            await self.sessions.restore()
            self.engines.open()
            yield
            await self.sessions.close()
            await self.engines.close()
            self.journal.close()

        application = Starlette(
            routes=self.endpoints(),
            lifespan=lifespan,
            middleware=[Middleware(HeadLimits)],
            exception_handlers={GatewayError: gateway_error, 404: no_route, 405: no_route, Exception: defect},
        )
        # A path that is nearly right is told so, not redirected.
        application.router.redirect_slashes = False
        return application

    def endpoints(self) -> list[Endpoint]:
        """Every route."""
        own = [
            Endpoint("GET", "/health", self.health, key="none", summary="Whether gateway and engine answer"),
            Endpoint("GET", "/openapi.json", self.openapi, key="none", summary="This document"),
            Endpoint("GET", "/docs", self.docs, key="none", media="text/html", summary="This document, to read"),
        ]
        for prefix in ("/v1", ""):
            own.append(Endpoint("GET", prefix + "/models", self.models, key="any", summary="The model served here"))
            own += [self._inference(prefix + path, dialect) for path, dialect in DIALECTS.items()]
        return self.rl.routes() + self.fleet.routes() + own

    def _inference(self, path: str, dialect: Dialect) -> Endpoint:
        return Endpoint(
            "POST",
            path,
            partial(self.infer, dialect=dialect),
            key="model",
            body=dialect.shape,
            errors=dialect.errors,
            streams=True,
            query=frozenset({"beta"}),  # Anthropic's SDK adds it to every beta request; it changes nothing here
            summary=f"Call the model ({dialect.name})",
        )

    async def infer(self, request: Request, dialect: Dialect) -> Response:
        """A model call in one dialect, start to end."""
        try:
            session = await self.access.session(request, "model")
            asked = dialect.parse(await read(request), request.headers, session, self.settings.model)
            flight = await self.calls.start(session, asked.request)
            if asked.events is None:
                await until(request, flight, flight.task)
                return JSONResponse(asked.whole(outcome(flight, session)))
            first = asyncio.ensure_future(flight.parts.get())
            await until(request, flight, first)  # so that an early failure has its own HTTP status
            if first.result() is None:
                outcome(flight, session)
            return EventStream(flight, session, first.result(), asked.events(flight.calls))
        except GatewayError as error:
            return JSONResponse(dialect.error(error), status_code=error.status, headers=error.headers)

    async def models(self, request: Request) -> Response:
        if not self.access.is_operator(request):
            await self.access.session(request, "model", "reward")
        return JSONResponse(
            {
                "object": "list",
                "data": [{"id": self.settings.model, "object": "model", "created": 0, "owned_by": "lakeloop"}],
            }
        )

    async def health(self, _: Request) -> Response:
        answers = await asyncio.gather(*(member.engine.healthy() for member in self.engines.members))
        engine = "ok" if any(answers) else "does not answer"
        return JSONResponse(
            {"status": "ok", "engine": engine, "engine_url": self.settings.engine, "model": self.settings.model}
        )

    async def openapi(self, _: Request) -> Response:
        return JSONResponse(self._document())

    async def docs(self, _: Request) -> Response:
        return HTMLResponse(openapi.page(self._document()), headers={"content-security-policy": DOCS_POLICY})

    def _document(self) -> dict[str, Any]:
        return openapi.document(self.endpoints(), version("lakeloop"))
