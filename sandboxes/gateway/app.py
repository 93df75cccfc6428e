"""The HTTP surface: routes, keys, and how a running call meets its client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandboxes.gateway.access import Access
from sandboxes.gateway.bodies import read
from sandboxes.gateway.calls import Calls
from sandboxes.gateway.dialects.base import Dialect
from sandboxes.gateway.dialects.chat import Chat
from sandboxes.gateway.engine import Engine
from sandboxes.gateway.engines import Engines
from sandboxes.gateway.engines_orders import Orders
from sandboxes.gateway.errors import GatewayError
from sandboxes.gateway.journal import Journal
from sandboxes.gateway.meeting import EventStream, outcome, until
from sandboxes.gateway.rl import RL
from sandboxes.gateway.sessions import Sessions
from sandboxes.gateway.settings import Settings, check_upstream

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

        gets = {
            "/health": self.health,
            "/models": self.models,
            "/v1/models": self.models,
        }
        routes = self.rl.routes() + [Route(path, handler, methods=["GET"]) for path, handler in gets.items()]
        for path, dialect in DIALECTS.items():
            handler = partial(self.infer, dialect=dialect)
            routes += [Route(prefix + path, handler, methods=["POST"]) for prefix in ("", "/v1")]
        return Starlette(
            routes=routes, lifespan=lifespan, exception_handlers={GatewayError: _error, 404: _no_route, 405: _no_route}
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


async def _error(_: Request, error: Exception) -> Response:
    assert isinstance(error, GatewayError)
    return JSONResponse(error.body, status_code=error.status, headers=error.headers)


async def _no_route(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    message = f"no route {request.method} {request.url.path}"
    return JSONResponse(
        {"error": {"message": message, "type": "not_found_error", "param": None, "code": None}}, status_code=status
    )
