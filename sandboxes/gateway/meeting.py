"""How a running call meets its client: in one piece or as events; a client that goes away cancels the call."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sandboxes.gateway.calls import Flight
from sandboxes.gateway.dialects import chat
from sandboxes.gateway.errors import Conflict, GatewayError
from sandboxes.gateway.recorded import Recorded
from sandboxes.gateway.sessions import Session


class EventStream(Response):
    """A running call as server-sent events. A client that goes away cancels the call."""

    def __init__(self, flight: Flight, session: Session, first: str | None, body: chat.ChatRequest) -> None:
        super().__init__(media_type="text/event-stream", headers={"cache-control": "no-store"})
        del self.headers["content-length"]
        assert flight.call is not None
        include_usage = bool(body.stream_options and body.stream_options.include_usage)
        intent = flight.call.intent
        self._chunks = chat.Chunks(
            intent.call_id, int(intent.started_at.timestamp()), body.model, include_usage=include_usage
        )
        self._flight, self._session, self._first = flight, session, first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watch = asyncio.create_task(_cancel_when_gone(receive, self._flight))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for event in self._events():
                await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            watch.cancel()
            self._flight.cancel()  # nothing happens where it is done

    async def _events(self) -> AsyncIterator[bytes]:
        part = self._first
        while part is not None:
            yield self._chunks.content(part)
            part = await self._flight.parts.get()
        try:
            call = outcome(self._flight, self._session)
        except GatewayError as error:
            yield chat.error_event(error.body)
            return
        for event in self._chunks.last(call):
            yield event


def outcome(flight: Flight, session: Session) -> Recorded:
    """The recorded call of a flight that is over, or the error it ended with."""
    if flight.task.cancelled():
        session.check_open()
        raise Conflict("this call was cancelled")
    return flight.task.result()


async def until(request: Request, flight: Flight, wanted: asyncio.Future[Any]) -> None:
    """Wait for `wanted`; a client that goes away cancels the call."""
    watch = asyncio.create_task(_cancel_when_gone(request.receive, flight))
    try:
        await asyncio.wait([wanted])
    finally:
        watch.cancel()
        if not wanted.done():
            flight.cancel()


async def _cancel_when_gone(receive: Receive, flight: Flight) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    flight.cancel()
