"""The HTTP surface: routes, keys, and how a running call meets its client."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakehouse.records import Mode
from sandboxes.gateway import export, keys
from sandboxes.gateway.calls import Calls
from sandboxes.gateway.dialects.base import Dialect
from sandboxes.gateway.dialects.chat import Chat
from sandboxes.gateway.engine import Engine
from sandboxes.gateway.errors import BadRequest, Conflict, GatewayError, TooLarge, Unauthorized
from sandboxes.gateway.journal import Journal
from sandboxes.gateway.meeting import EventStream, outcome, until
from sandboxes.gateway.recorded import Recorded
from sandboxes.gateway.sessions import Session, Sessions
from sandboxes.gateway.settings import Settings, check_upstream

BODY_LIMIT_BYTES = 16 << 20
DIALECTS: dict[str, Dialect] = {"/chat/completions": Chat()}
Body = TypeVar("Body", bound=BaseModel)


class StartSession(BaseModel):
    model_config = ConfigDict(extra="forbid")

    task_id: str = Field(min_length=1, max_length=512)
    api_key: str | None = Field(default=None, min_length=8)
    mode: Mode = "policy"


class SetReward(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    interaction_id: str | None = None
    reward: float


class Export(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    session_id: str
    discount: float = 1.0
    style: Literal["individual", "concat"] = "individual"
    drop_retry_orphans: bool = False


class Gateway:
    """One process: engine, journal, sessions, routes."""

    def __init__(self, settings: Settings) -> None:
        check_upstream(settings.engine, settings.allow_upstream)
        self.settings = settings
        self.operator_key = keys.operator_key(settings.operator_key)
        self.engine = Engine(settings.engine, settings.model, deadline_s=settings.call_deadline_s)
        self.journal = Journal(settings.journal)
        self.sessions = Sessions(self.journal, max_open=settings.max_sessions, idle_s=settings.idle_session_s)
        self.calls = Calls(
            self.engine,
            self.journal,
            self.sessions,
            max_running=settings.max_calls,
            deadline_s=settings.call_deadline_s,
        )

    def app(self) -> Starlette:
        """The ASGI application."""

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            await self.sessions.restore()
            yield
            await self.sessions.close()
            await self.engine.close()
            self.journal.close()

        posts: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/grant_capacity": self.grant_capacity,
            "/rl/start_session": self.start_session,
            "/rl/set_reward": self.set_reward,
            "/rl/end_session": self.end_session,
            "/export_trajectories": self.export_trajectories,
        }
        gets = {
            "/health": self.health,
            "/models": self.models,
            "/v1/models": self.models,
            "/sessions/{session_id:path}/calls": self.session_calls,
        }
        routes = [Route(path, handler, methods=["POST"]) for path, handler in posts.items()]
        routes += [Route(path, handler, methods=["GET"]) for path, handler in gets.items()]
        for path, dialect in DIALECTS.items():
            handler = partial(self.infer, dialect=dialect)
            routes += [Route(prefix + path, handler, methods=["POST"]) for prefix in ("", "/v1")]
        return Starlette(
            routes=routes, lifespan=lifespan, exception_handlers={GatewayError: _error, 404: _no_route, 405: _no_route}
        )

    async def infer(self, request: Request, dialect: Dialect) -> Response:
        """A model call in one dialect, start to end."""
        try:
            session = await self._session(request, "model")
            asked = dialect.parse(await _read(request), request.headers, session, self.settings.model)
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

    async def grant_capacity(self, request: Request) -> Response:
        self._operator(request)
        return JSONResponse({"capacity": self.sessions.grant()})

    async def start_session(self, request: Request) -> Response:
        self._operator(request)
        body = await _body(request, StartSession)
        facts = await self.engine.facts()
        if body.mode == "policy":
            await self._check_weights()
        session, model_key, reward_key = await self.sessions.start(
            body.task_id, body.mode, body.api_key, engine_version=facts.version, template_digest=facts.template_digest
        )
        return JSONResponse({"session_id": session.session_id, "api_key": model_key, "reward_key": reward_key})

    async def set_reward(self, request: Request) -> Response:
        session = await self._session(request, "reward")
        body = await _body(request, SetReward)
        call = self._rewarded(session, body.interaction_id)
        await self.journal.reward(session.session_id, call.intent.call_id, body.reward)
        session.rewards.append((call.intent.call_id, body.reward))
        return JSONResponse({"message": "success"})

    async def end_session(self, request: Request) -> Response:
        session = await self._session(request, "model", "reward")
        await self.sessions.end(session, "ended by its owner")
        return JSONResponse({"message": "success", "interaction_count": sum(call.answered for call in session.calls)})

    async def export_trajectories(self, request: Request) -> Response:
        self._operator(request)
        body = await _body(request, Export)
        session = await self.sessions.by_id(body.session_id)
        rows = export.trajectories(
            session, discount=body.discount, style=body.style, drop_retry_orphans=body.drop_retry_orphans
        )
        return JSONResponse({"interactions": rows})

    async def session_calls(self, request: Request) -> Response:
        self._operator(request)
        session = await self.sessions.by_id(request.path_params["session_id"])
        if session.state != "open":
            await self.sessions.settle(session)
        rows = [
            call.row(session.session_id, masked=session.masked) for call in session.calls if call.answer is not None
        ]
        return JSONResponse({"calls": rows})

    async def models(self, request: Request) -> Response:
        key = keys.bearer(dict(request.headers))
        if not keys.same(key, self.operator_key):
            await self.sessions.by_key(key)
        return JSONResponse(
            {
                "object": "list",
                "data": [{"id": self.settings.model, "object": "model", "created": 0, "owned_by": "lakeloop"}],
            }
        )

    async def health(self, _: Request) -> Response:
        engine = "ok" if await self.engine.healthy() else "does not answer"
        return JSONResponse(
            {"status": "ok", "engine": engine, "engine_url": self.settings.engine, "model": self.settings.model}
        )

    async def _check_weights(self) -> None:
        label = await self.engine.weight_label()
        if label is not None and not label.isdecimal():
            raise Conflict(
                f"the engine's weights are labelled {label!r}, which is no registered version; label them first: "
                f'POST {self.engine.url}/update_weight_version {{"new_version": "1"}}',
                code="weights_unlabelled",
            )

    def _operator(self, request: Request) -> None:
        if not keys.same(keys.bearer(dict(request.headers)), self.operator_key):
            raise Unauthorized(f"this route needs the operator key, kept in {self.settings.operator_key}")

    async def _session(self, request: Request, *allowed: str) -> Session:
        session, kind = await self.sessions.by_key(keys.bearer(dict(request.headers)))
        if kind not in allowed:
            raise Unauthorized(f"this route needs the session's {' or '.join(allowed)} key, not its {kind} key")
        return session

    def _rewarded(self, session: Session, call_id: str | None) -> Recorded:
        if call_id is None:
            last = session.last_answered()
            if last is None:
                raise BadRequest("this session has no answered call to reward", param="interaction_id")
            return last
        for call in session.calls:
            if call.intent.call_id == call_id and call.answered:
                return call
        raise BadRequest(f"no answered interaction {call_id!r} in this session", param="interaction_id")


async def _read(request: Request) -> bytes:
    raw = bytearray()
    async for part in request.stream():
        raw += part
        if len(raw) > BODY_LIMIT_BYTES:
            raise TooLarge(f"the body is larger than {BODY_LIMIT_BYTES >> 20} MiB")
    return bytes(raw)


async def _body(request: Request, shape: type[Body]) -> Body:
    try:
        return shape.model_validate_json(await _read(request))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"]) or "body"
        raise BadRequest(f"'{where}': {first['msg']} (known: {', '.join(shape.model_fields)})", param=where) from error


async def _error(_: Request, error: Exception) -> Response:
    assert isinstance(error, GatewayError)
    return JSONResponse(error.body, status_code=error.status, headers=error.headers)


async def _no_route(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    message = f"no route {request.method} {request.url.path}"
    return JSONResponse(
        {"error": {"message": message, "type": "not_found_error", "param": None, "code": None}}, status_code=status
    )
