"""How a running call meets its client: in one piece or as events; a client that goes away cancels the call."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lakehouse.records import Status
from sandboxes.gateway.calls.run import Calls
from sandboxes.gateway.dialects.base import Asked, Events
from sandboxes.gateway.errors import Conflict, GatewayError, Stopping
from sandboxes.gateway.sessions.flight import Flight, Part
from sandboxes.gateway.sessions.recorded import Recorded
from sandboxes.gateway.sessions.sessions import Session

KEEP_ALIVE_S = 15.0  # a stream says something at least this often: what is between may cut one that is silent
KEEP_ALIVE = b": the engine is at work\n\n"  # a comment, which readers of server-sent events pass over


class EventStream(Response):
    """A running call as server-sent events. A client that goes away cancels the call.

    `first`: the first of the flight's parts, waited for already; `seen`: called when it is there.
    """

    def __init__(
        self,
        flight: Flight,
        session: Session,
        first: asyncio.Future[Part | None],
        events: Events,
        seen: Callable[[], None],
    ) -> None:
        super().__init__(media_type="text/event-stream", headers={"cache-control": "no-store"})
        del self.headers["content-length"]
        self._flight, self._session, self._first, self._told, self._seen = flight, session, first, events, seen

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
        waiting = self._first
        while True:
            while not (await asyncio.wait([waiting], timeout=KEEP_ALIVE_S))[0]:  # tool calls are told at the end
                yield KEEP_ALIVE
            part = waiting.result()
            if part is None:
                break
            if waiting is self._first:
                self._seen()
            for event in self._told.part(part):
                yield event
            waiting = asyncio.ensure_future(self._flight.parts.get())
        try:
            rest = self._told.last(outcome(self._flight, self._session))
        except GatewayError as error:
            rest = self._told.error(error)
        for event in rest:
            yield event


async def begin(calls: Calls, session: Session, asked: Asked) -> Flight:
    """Start what was asked for: one flight, also of several prompts. Where one may not run, none does."""
    requests, flights = [asked.request, *asked.more], list[Flight]()
    try:
        for request in requests:
            flights.append(await calls.start(session, request))
    except GatewayError:
        for flight in flights:
            flight.cancel()
        raise
    if len(flights) == 1:
        return flights[0]
    choices = [request.n for request in requests]
    return Flight(lambda joint: _together(joint, flights, choices), choices=sum(choices))


async def _together(joint: Flight, flights: Sequence[Flight], choices: Sequence[int]) -> list[Recorded]:
    """Parts of all flights as those of one, then all of their calls. Where one fails or is cancelled, so are all."""

    async def forward(flight: Flight, offset: int) -> list[Recorded]:
        while (part := await flight.parts.get()) is not None:
            joint.calls = joint.calls or list(flight.calls)  # enough to begin with
            joint.parts.put_nowait(replace(part, choice=part.choice + offset))
        return await flight.task

    forwarding = [asyncio.create_task(forward(flight, sum(choices[:n]))) for n, flight in enumerate(flights)]
    try:
        told = await asyncio.gather(*forwarding)
    finally:
        for flight in flights:  # nothing happens to one that is done
            flight.cancel(*joint.ending)
        await asyncio.wait(forwarding)
    joint.calls = [call for calls in told for call in calls]
    return joint.calls


def outcome(flight: Flight, session: Session) -> list[Recorded]:
    """The recorded calls of a flight that is over, or the error it ended with."""
    if flight.task.cancelled():
        session.check_open()
        status, cause = flight.ending
        if status is Status.INFRA_ERROR:
            raise Stopping(cause)
        raise Conflict("this call was cancelled")
    return flight.task.result()


async def until(request: Request, flight: Flight, wanted: asyncio.Future[Any], *, streamed: bool = False) -> None:
    """Wait for `wanted`; a client that goes away cancels the call.

    Where the answer is streamed, only as long as a stream may be silent: then it is to begin, unless the call waits for
    an engine. Such a one has used nothing, and a refusal with a status of its own is tried again by itself.
    """
    watch = asyncio.create_task(_cancel_when_gone(request.receive, flight))
    try:
        while not (await asyncio.wait([wanted], timeout=KEEP_ALIVE_S))[0]:
            if streamed and flight.calls:
                return
    except BaseException:  # cancelled, too: nobody waits for this call any more
        flight.cancel()
        raise
    finally:
        watch.cancel()


async def _cancel_when_gone(receive: Receive, flight: Flight) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    flight.cancel()
