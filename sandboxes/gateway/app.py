"""The HTTP surface: routes, keys, and how a running call meets its client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from sandboxes.gateway.calls.run import Calls
from sandboxes.gateway.dialects.anthropic import Messages
from sandboxes.gateway.dialects.base import Dialect
from sandboxes.gateway.dialects.chat import Chat
from sandboxes.gateway.dialects.completions import Completions
from sandboxes.gateway.dialects.responses import Responses
from sandboxes.gateway.engines.engine import Engine
from sandboxes.gateway.engines.orders import Orders
from sandboxes.gateway.engines.pool import Engines
from sandboxes.gateway.errors import GatewayError, Stopping
from sandboxes.gateway.http import openapi
from sandboxes.gateway.http.access import Access
from sandboxes.gateway.http.bodies import read
from sandboxes.gateway.http.endpoints import Endpoint, defect, gateway_error, no_route
from sandboxes.gateway.http.fleet import Fleet
from sandboxes.gateway.http.front import Front, QuickJson
from sandboxes.gateway.http.heads import HeadLimits
from sandboxes.gateway.http.lookups import Lookups
from sandboxes.gateway.http.meeting import EventStream, begin, outcome, until
from sandboxes.gateway.http.rl import RL
from sandboxes.gateway.sessions import keys
from sandboxes.gateway.sessions.journal import Journal
from sandboxes.gateway.sessions.sessions import Sessions
from sandboxes.gateway.sessions.share import ALONE, Share
from sandboxes.gateway.settings import Settings, check_upstream
from sandboxes.gateway.telemetry.metrics import Metrics
from sandboxes.gateway.telemetry.observe import Observer

DOCS_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
REFRESH_S = 2.0
PAUSE_WAIT_S = 120.0  # how long a call waits for an engine whose weights are being swapped
DIALECTS: dict[str, Dialect] = {
    "/chat/completions": Chat(),
    "/responses": Responses(),
    "/messages": Messages(),
    "/completions": Completions(),
}


class Gateway:
    """One process: engine, journal, sessions, routes. `share`: which sessions are this worker's."""

    def __init__(self, settings: Settings, share: Share = ALONE) -> None:
        for url in settings.engines:
            check_upstream(url, settings.allow_upstream)
        self.settings = settings
        self.share = share
        self.engines = Engines(
            settings.engines, Orders(settings.orders), self._engine, wait_s=min(settings.call_deadline_s, PAUSE_WAIT_S)
        )
        self.observer = Observer(Metrics(), traces=settings.traces)
        self.journal = Journal(settings.journal, settings.session_keys)
        self.journal.timed = self.observer.metrics.journal.observe
        self.sessions = Sessions(
            self.journal,
            max_open=settings.max_sessions,
            idle_s=settings.idle_session_s,
            max_mask_fraction=settings.max_mask_fraction,
            model_rewards=settings.model_key_rewards,
            share=share,
            tell=self.observer.session_event,
        )
        self.access = Access(settings.operator_key, self.sessions)
        self.metrics_key = keys.metrics_key(settings.metrics_key)
        self.stopping = False
        self.rl = RL(self.engines, self.journal, self.sessions, self.access)
        self.lookups = Lookups(settings.model, self.engines, self.access)
        self.fleet = Fleet(self.engines, self.journal, self.access, settings.allow_upstream)
        self.calls = Calls(
            self.engines,
            self.journal,
            self.sessions,
            max_running=share.part(settings.max_calls),
            deadline_s=settings.call_deadline_s,
        )

    @property
    def operator_key(self) -> str:
        return self.access.operator_key

    def _engine(self, url: str) -> Engine:
        settings = self.settings
        return Engine(
            url,
            settings.model,
            deadline_s=settings.call_deadline_s,
            allow=settings.allow_upstream,
            route=settings.token_route,
        )

    def app(self) -> Starlette:
        """The ASGI application."""

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            await self.sessions.restore()
            self.engines.open()
            refreshing = asyncio.create_task(self._keep_fresh())
            yield
            refreshing.cancel()
            await self.sessions.close()
            await self.close()

        endpoints = self.endpoints()
        application = Starlette(
            routes=endpoints,
            lifespan=lifespan,
            middleware=[Middleware(HeadLimits), Middleware(Front, endpoints=endpoints)],
            exception_handlers={GatewayError: gateway_error, 404: no_route, 405: no_route, Exception: defect},
        )
        # A path that is nearly right is told so, not redirected.
        application.router.redirect_slashes = False
        return application

    async def close(self) -> None:
        """Let go of engines and journal."""
        await self.engines.close()
        self.journal.close()

    def endpoints(self) -> list[Endpoint]:
        """Every route."""
        own = [
            Endpoint("GET", "/health", self.health, key="none", summary="Whether gateway and engine answer"),
            Endpoint(
                "GET",
                "/metrics",
                self.prometheus,
                key="metrics",
                media=CONTENT_TYPE_LATEST,
                summary="Prometheus metrics",
            ),
            Endpoint("GET", "/openapi.json", self.openapi, key="none", summary="This document"),
            Endpoint("GET", "/docs", self.docs, key="none", media="text/html", summary="This document, to read"),
        ]
        for prefix in ("/v1", ""):
            own += self.lookups.routes(prefix)
            own += [self._inference(prefix + path, dialect) for path, dialect in DIALECTS.items()]
        rl = self.rl.routes()
        for endpoint in rl:
            if endpoint.path == "/rl/start_session":
                endpoint.check = self.check_taking
        return rl + self.fleet.routes() + own

    def _inference(self, path: str, dialect: Dialect) -> Endpoint:
        return Endpoint(
            "POST",
            path,
            partial(self.infer, dialect=dialect),
            key="model",
            body=dialect.shape,
            errors=dialect.errors,
            tell=dialect.error,
            streams=True,
            query=frozenset({"beta"}),  # Anthropic's SDK adds it to every beta request; it changes nothing here
            summary=f"Call the model ({dialect.name})",
        )

    async def infer(self, request: Request, dialect: Dialect) -> Response:
        """A model call in one dialect, start to end."""
        seen = self.observer.begin(dialect.name, request.headers)
        flight = None
        try:
            self.check_taking()
            session = await self.access.session(request, "model")
            asked = dialect.parse(await read(request), request.headers, session, self.settings.model)
            flight = await begin(self.calls, session, asked)
            seen.follow(flight, session)
            if asked.events is None:
                await until(request, flight, flight.task)
                return QuickJson(asked.whole(outcome(flight, session)))
            first = asyncio.ensure_future(flight.parts.get())
            await until(request, flight, first, streamed=True)  # so that an early failure has its own HTTP status
            if first.done() and first.result() is None:
                outcome(flight, session)
            return EventStream(flight, session, first, asked.events(flight.calls), seen.first_token)
        except GatewayError as error:
            if flight is None:
                seen.refused(error)
            raise

    def check_taking(self) -> None:
        """Stopping where new work is not taken any more."""
        if self.stopping:
            raise Stopping("this gateway is stopping and takes no new calls; another, or the next one here, will")

    async def drain(self, deadline_s: float) -> int:
        """Take no more calls, wait for those that run, and record what is cut at the deadline; returns how many."""
        self.stopping = True
        cut = await self.observer.idle(deadline_s)
        await self.sessions.close()
        return cut

    async def prometheus(self, request: Request) -> Response:
        if not keys.same(keys.bearer(request.headers), self.metrics_key):
            self.access.operator(request)
        self._refresh()
        return Response(self.observer.metrics.exposition(), media_type=CONTENT_TYPE_LATEST)

    async def _keep_fresh(self) -> None:
        """Another worker may be the one that is asked for the metrics."""
        while True:
            self._refresh()
            await asyncio.sleep(REFRESH_S)

    def _refresh(self) -> None:
        """What is a state rather than an event."""
        metrics, delivered = self.observer.metrics, self.sessions.delivered_fraction
        metrics.open_sessions.set(len(self.sessions.open))
        if delivered is not None:
            metrics.delivered.set(delivered)
        metrics.engine_states({member.url: member.state for member in self.engines.members})

    async def health(self, _: Request) -> Response:
        answers = await asyncio.gather(*(member.engine.healthy() for member in self.engines.members))
        engine = "ok" if any(answers) else "does not answer"
        return JSONResponse(
            {
                "status": "ok",
                "engine": engine,
                "engine_url": self.settings.engine,
                "model": self.settings.model,
                "delivered_fraction": self.sessions.delivered_fraction,
                "starts_sessions": self.sessions.stop.cause is None,
            }
        )

    async def openapi(self, _: Request) -> Response:
        return JSONResponse(self._document())

    async def docs(self, _: Request) -> Response:
        return HTMLResponse(openapi.page(self._document()), headers={"content-security-policy": DOCS_POLICY})

    def _document(self) -> dict[str, Any]:
        return openapi.document(self.endpoints(), version("lakeloop"), self.settings.model)
