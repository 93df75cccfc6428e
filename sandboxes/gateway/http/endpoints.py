"""A route that says what it takes. The router and the OpenAPI document are made from the same facts."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandboxes.gateway.errors import BadRequest, ErrorBody, GatewayError, NotFound

Key = Literal["none", "operator", "metrics", "model", "reward", "session", "any"]
Handler = Callable[[Request], Awaitable[Response]]


class Endpoint(Route):
    """One method of one path: which key opens it, which model validates its body, in which form it tells errors.

    `errors` is the shape of what `tell` gives. What is wrong before a route is found (404, 405, 431) has OpenAI's form.
    """

    def __init__(
        self,
        method: Literal["GET", "POST"],
        path: str,
        handler: Handler,
        *,
        key: Key,
        summary: str,
        body: type[BaseModel] | None = None,
        errors: type[BaseModel] = ErrorBody,
        tell: Callable[[GatewayError], dict[str, Any]] = lambda error: error.body,
        media: str = "application/json",
        streams: bool = False,
        query: frozenset[str] = frozenset(),
    ) -> None:
        async def checked(request: Request) -> Response:
            try:
                if request.scope["query_string"] and (unknown := sorted(set(request.query_params) - query)):
                    raise BadRequest(f"Unknown query parameter: '{unknown[0]}'", param=unknown[0])
                if self.check is not None:
                    self.check()
                return await handler(request)
            except GatewayError as error:
                return JSONResponse(tell(error), status_code=error.status, headers=error.headers)

        super().__init__(path, checked, methods=[method])
        self.check: Callable[[], None] | None = None  # asked first; raises where nothing new is taken
        self.method = method
        self.key = key
        self.summary = summary
        self.body = body
        self.errors = errors
        self.media = media
        self.streams = streams  # answers with server-sent events where the body asks for it
        self.query = query


async def gateway_error(_: Request, error: Exception) -> Response:
    """An error in OpenAI's form."""
    assert isinstance(error, GatewayError)
    return JSONResponse(error.body, status_code=error.status, headers=error.headers)


async def no_route(request: Request, error: Exception) -> Response:
    """404 and 405, in the form of every other error."""
    wrong = NotFound(f"no route {request.method} {request.url.path}", code="no_route")
    headers = {**wrong.headers, **(getattr(error, "headers", None) or {})}
    return JSONResponse(wrong.body, status_code=getattr(error, "status_code", 404), headers=headers)


async def defect(_: Request, error: Exception) -> Response:
    """What no handler foresaw: the log has the traceback, the caller only that it was not their doing."""
    told = GatewayError("the gateway failed; its log says why", code=type(error).__name__)
    return JSONResponse(told.body, status_code=500, headers={"x-should-retry": "true", "Retry-After": "1"})
