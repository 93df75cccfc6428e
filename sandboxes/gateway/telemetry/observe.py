"""What is told of every call while it runs and when it ends: metrics, one log line, one span."""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lakehouse.records import Status
from sandboxes.gateway.engines.waiting import CURRENT, Waiting
from sandboxes.gateway.errors import GatewayError
from sandboxes.gateway.sessions.flight import Flight
from sandboxes.gateway.sessions.recorded import Recorded
from sandboxes.gateway.sessions.sessions import Session
from sandboxes.gateway.telemetry.metrics import Metrics
from sandboxes.gateway.telemetry.tracing import Traces

if TYPE_CHECKING:
    from opentelemetry.trace import Span

log = logging.getLogger(__name__)
EXACT = "exact"
CLIENT_GONE = 499  # nginx's status for a request whose client went away; HTTP has none


class Observer:
    """Follows the calls of one process."""

    def __init__(self, metrics: Metrics, *, traces: bool) -> None:
        self.metrics = metrics
        self.traces = Traces() if traces else None
        self.running: set[Flight] = set()

    def begin(self, dialect: str, headers: Mapping[str, str]) -> "Seen":
        """A request for a call has arrived. To be called in the request's own task."""
        return Seen(self, dialect, headers)

    def session_event(self, event: str, session: Session) -> None:
        """What became of a session, for the log and the counters."""
        self.metrics.sessions.labels(event).inc()
        facts = {"session_id": session.session_id, "mode": session.row.mode, "calls": len(session.calls)}
        log.info("session %s", event, extra={"facts": facts})

    async def idle(self, deadline_s: float) -> int:
        """Wait until no call runs; returns how many still do at the deadline."""
        if self.running:
            await asyncio.wait([flight.task for flight in self.running], timeout=deadline_s)
        return len(self.running)


class Seen:
    """One call as it is seen from outside."""

    def __init__(self, observer: Observer, dialect: str, headers: Mapping[str, str]) -> None:
        self._observer = observer
        self._metrics = observer.metrics
        self._dialect = dialect
        self._started = time.monotonic()
        self._first_token_s: float | None = None
        self._waiting = Waiting()
        CURRENT.set(self._waiting)
        self._span: Span | None = None
        if observer.traces is not None:
            self._span = observer.traces.begin(dialect, headers, self._waiting.headers)

    def follow(self, flight: Flight, session: Session) -> None:
        """It runs: everything else is told when it ends."""
        known = len(session.calls)  # a call of a lower number was made for an earlier request: an answer given again
        self._observer.running.add(flight)
        self._metrics.running_calls.inc()
        flight.task.add_done_callback(lambda _: self._ended(flight, session, known))

    def first_token(self) -> None:
        """The first content is about to go to the client."""
        self._first_token_s = time.monotonic() - self._started
        self._metrics.first_token.labels(self._dialect).observe(self._first_token_s)

    def refused(self, error: GatewayError) -> None:
        """It ended before it ran."""
        self._metrics.calls.labels(self._dialect, error.status, "refused", "none").inc()
        self._tell({"http_status": error.status, "outcome": "refused", **_cause(error)}, failed=error.status >= 500)

    def _ended(self, flight: Flight, session: Session, known: int) -> None:
        self._observer.running.discard(flight)
        self._metrics.running_calls.dec()
        status, error = _http(flight.task)
        calls = [call for call in flight.calls if call.answer is not None]
        replayed = bool(calls) and calls[0].intent.call_index < known
        outcome = calls[-1].answer.status.value if calls and calls[-1].answer else _outcome(status)
        route = calls[-1].intent.token_route if calls else "none"
        self._metrics.calls.labels(self._dialect, status, outcome, route).inc()
        latency, own = self._times()
        if replayed:
            self._metrics.replayed.labels(self._dialect).inc()
        else:
            self._count(calls, session)
        facts = {
            "session_id": session.session_id,
            "call_id": calls[0].intent.call_id if calls else None,
            "http_status": status,
            "outcome": outcome,
            "token_route": route,
            "choices": len(calls),
            "prompt_tokens": len(calls[0].intent.prompt_token_ids) if calls else 0,
            "sampled_tokens": sum(len(call.answer.completion_token_ids) for call in calls if call.answer),
            "latency_s": round(latency, 4),
            "own_s": round(own, 4),
            "first_token_s": self._first_token_s and round(self._first_token_s, 4),
            "replayed": replayed,
            "masked": session.masked is not None,
            **(_cause(error) if error else {}),
        }
        self._tell(facts, failed=status >= 500)

    def _times(self) -> tuple[float, float]:
        latency = time.monotonic() - self._started
        own = max(0.0, latency - self._waiting.seconds)
        self._metrics.latency.labels(self._dialect).observe(latency)
        self._metrics.own.labels(self._dialect).observe(own)
        return latency, own

    def _count(self, calls: list[Recorded], session: Session) -> None:
        """Tokens, once per recorded call; the prompt of several choices was one."""
        for number, call in enumerate(calls):
            assert call.answer is not None
            if number == 0:
                self._metrics.prompt_tokens.labels(self._dialect).inc(len(call.intent.prompt_token_ids))
            self._metrics.sampled_tokens.labels(self._dialect).inc(len(call.answer.completion_token_ids))
            self._metrics.sampled_by(call.answer.weight_versions)
            self._metrics.call_recorded(exact=call.answer.token_status == EXACT and session.masked is None)

    def _tell(self, facts: dict[str, Any], *, failed: bool) -> None:
        facts = {"dialect": self._dialect, **facts}
        log.info("call", extra={"facts": facts})
        if self._span is not None and self._observer.traces is not None:
            self._observer.traces.end(self._span, facts, failed=failed)


def _http(task: asyncio.Task[Any]) -> tuple[int, BaseException | None]:
    if task.cancelled():
        return CLIENT_GONE, None
    error = task.exception()
    if error is None:
        return 200, None
    return (error.status if isinstance(error, GatewayError) else 500), error


def _outcome(status: int) -> str:
    return Status.CANCELLED.value if status == CLIENT_GONE else "refused" if status < 500 else Status.INFRA_ERROR.value


def _cause(error: BaseException) -> dict[str, Any]:
    """Class and code. Not the text: it may quote the request."""
    return {"error": type(error).__name__, "code": getattr(error, "code", None)}
