"""How a running call meets its client: in one piece or as events; a client that goes away cancels the call."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sandboxes.gateway.calls import Flight, Part
from sandboxes.gateway.dialects.base import Events
from sandboxes.gateway.errors import Conflict, GatewayError
from sandboxes.gateway.recorded import Recorded
from sandboxes.gateway.sessions import Session


class EventStream(Response):
    """A running call as server-sent events. A client that goes away cancels the call."""

    def __init__(self, flight: Flight, session: Session, first: Part | None, events: Events) -> None:
        super().__init__(media_type="text/event-stream", headers={"cache-control": "no-store"})
        del self.headers["content-length"]
        self._flight, self._session, self._first, self._told = flight, session, first, events

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
        for event in self._told.first():
            yield event
        part = self._first
        while part is not None:
            for event in self._told.part(part):
                yield event
            part = await self._flight.parts.get()
        try:
            rest = self._told.last(outcome(self._flight, self._session))
        except GatewayError as error:
            rest = self._told.error(error)
        for event in rest:
            yield event


def outcome(flight: Flight, session: Session) -> list[Recorded]:
    """The recorded calls of a flight that is over, or the error it ended with."""
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
