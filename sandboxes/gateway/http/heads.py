"""Bounds on what a request may carry in its head. Bodies are bounded where they are read."""

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from sandboxes.gateway.errors import GatewayError
from sandboxes.gateway.http.endpoints import gateway_error

HEADERS = 100
HEADER_BYTES = 32 << 10  # all names and values together; the server itself ends what sends more than 64 KiB


class HeadTooLarge(GatewayError):
    """More headers, or longer ones, than any client has reason to send."""

    status = 431
    kind = "invalid_request_error"


class HeadLimits:
    """ASGI middleware: 431 where the head is over the bounds."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = scope["headers"]
            size = sum([len(name) + len(value) for name, value in headers])
            if len(headers) > HEADERS or size > HEADER_BYTES:
                error = HeadTooLarge(
                    f"{len(headers)} headers of {size} bytes; at most {HEADERS} of {HEADER_BYTES} bytes are taken"
                )
                response = await gateway_error(Request(scope), error)
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)
