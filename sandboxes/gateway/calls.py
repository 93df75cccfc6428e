"""One model call, from a validated request to a recorded answer. `Calls._run` is the main path, top-down."""

import asyncio
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lakehouse.records import Status, now
from sandboxes.gateway import reply, splice, tree
from sandboxes.gateway.deltas import Deltas
from sandboxes.gateway.engine import Completion, Engine, recorded_sampling
from sandboxes.gateway.engines import Engines
from sandboxes.gateway.errors import BadRequest, Busy, EngineTrouble, GatewayError
from sandboxes.gateway.facts import Conversation
from sandboxes.gateway.journal import Journal, JournalError
from sandboxes.gateway.recorded import DEMONSTRATED, UNKNOWN, Answer, Intent, Message, Recorded
from sandboxes.gateway.sessions import Session, Sessions

NO_LOGPROB = -9999.0  # what the engine sends for a log-prob that is NaN, minus infinity or absent


@dataclass(frozen=True)
class Part:
    """A stretch of one choice's content, as it is streamed."""

    text: str
    choice: int = 0


@dataclass(frozen=True)
class Request:
    """A call in no dialect. `sampling` holds only what the client set, in the engine's names."""

    conversation: Conversation
    sampling: dict[str, Any]
    body_digest: str
    stream: bool = False
    demonstration: Message | None = None
    logprobs: bool = False
    stop: list[str] = field(default_factory=list)
    idempotency_key: str | None = None
    is_retry: bool = False  # the SDK says that it sent this before
    id_prefix: str = "chatcmpl-"  # call ids begin with it: the id that the client is given is the call's own
    kept: dict[str, Any] = field(default_factory=dict)  # what the dialect must know of the request to tell it again


class Flight:
    """A running request. Parts of the content arrive on a queue, `None` at the end; the recorded calls are the task's."""

    def __init__(self, work: Callable[["Flight"], Any]) -> None:
        self.parts: asyncio.Queue[Part | None] = asyncio.Queue()
        self.ending = (Status.CANCELLED, "the client disconnected or the session ended")
        self.calls: list[Recorded] = []  # one per choice, from dispatch on
        self.task: asyncio.Task[list[Recorded]] = asyncio.create_task(work(self))
        self.task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[list[Recorded]]) -> None:
        if not task.cancelled():
            task.exception()  # seen, also where the client is gone and nobody asks
        self.parts.put_nowait(None)

    def cancel(self, status: Status = Status.CANCELLED, cause: str | None = None) -> None:
        """Abort generation; the call is recorded with this status."""
        if cause:
            self.ending = (status, cause)
        self.task.cancel()


class Calls:
    """Runs calls of all sessions, each on its session's engine."""

    def __init__(
        self, engines: Engines, journal: Journal, sessions: Sessions, *, max_running: int, deadline_s: float
    ) -> None:
        self._engines = engines
        self._journal = journal
        self._sessions = sessions
        self._max_running = max_running
        self._deadline_s = deadline_s
        self._running: set[Flight] = set()

    async def start(self, session: Session, request: Request) -> Flight:
        """Begin a call, or give a recorded answer again. Conflict, BadRequest or Busy where it may not run."""
        session.check_open()
        if (request.demonstration is not None) != (session.row.mode == "demonstration"):
            raise BadRequest(
                f"`demonstration` goes with demonstration sessions; this is a {session.row.mode} session",
                param="demonstration",
            )
        replay = await self._replay(session, request)
        if replay is None and len(self._running) >= self._max_running:
            raise Busy(f"{self._max_running} calls are running, the most this gateway takes")
        session.check_open()  # waiting for the replay may have taken a while
        flight = Flight(
            lambda flight: self._answered_before(replay, flight) if replay else self._run(session, request, flight)
        )
        for running in (self._running, session.flights):
            running.add(flight)
            flight.task.add_done_callback(lambda _, running=running: running.discard(flight))  # type: ignore[misc]
        return flight

    async def _answered_before(self, call: Recorded, flight: Flight) -> list[Recorded]:
        flight.calls = [call]
        return flight.calls

    async def _replay(self, session: Session, request: Request) -> Recorded | None:
        """The answered call that this request repeats: same idempotency key, or an SDK's retry of the same body."""
        key = request.idempotency_key
        for call in reversed(session.calls):
            same_body = call.intent.body_digest == request.body_digest
            if key and call.intent.idempotency_key == key and not same_body:
                raise BadRequest(f"idempotency key {key!r} was used with another body", param="Idempotency-Key")
            if same_body and (request.is_retry or (key and call.intent.idempotency_key == key)):
                if call.answer is None:  # the first try still runs: its answer is this one's
                    await asyncio.wait([flight.task for flight in session.flights], timeout=self._deadline_s)
                if call.answered:
                    return call
        return None

    async def _run(self, session: Session, request: Request, flight: Flight) -> list[Recorded]:
        """Render and splice, journal the intent, generate, read the reply, journal the answer."""
        started = time.monotonic()
        completion = Completion()
        session.used_at = started
        try:
            async with self._engines.serving(session) as engine, asyncio.timeout(self._deadline_s):
                prompt = await splice.build(engine, request.conversation, session.by_prefix, request.sampling)
                demonstrated = await self._demonstrated(engine, request, prompt)
                call = await self._dispatch(session, request, prompt, flight)
                if demonstrated is None:
                    answer = await self._sample(engine, request, prompt, completion, flight)
                else:
                    answer = _demonstration(request, demonstrated)
        except TimeoutError:
            trouble = EngineTrouble(f"the engine gave no answer within {self._deadline_s:.0f} s")
            await self._fail(session, flight.calls, completion, started, Status.INFRA_ERROR, trouble.message)
            raise trouble from None
        except GatewayError as error:
            status = Status.INFRA_ERROR if isinstance(error, EngineTrouble) else Status.AGENT_ERROR
            await self._fail(session, flight.calls, completion, started, status, error.message)
            raise
        except asyncio.CancelledError:
            await self._fail(session, flight.calls, completion, started, *flight.ending)
            raise
        except Exception as error:  # whatever the engine sent: the call is recorded, the client may try again
            trouble = EngineTrouble(f"the engine's answer could not be used: {type(error).__name__}: {error}")
            await self._fail(session, flight.calls, completion, started, Status.INFRA_ERROR, trouble.message)
            raise trouble from error
        await self._record(session, call, answer.model_copy(update={"latency_s": time.monotonic() - started}))
        session.used_at = time.monotonic()
        return flight.calls

    async def _demonstrated(self, engine: Engine, request: Request, prompt: splice.Prompt) -> list[int] | None:
        if request.demonstration is None:
            return None
        ids = await splice.demonstrated(engine, request.conversation, request.demonstration, prompt.rendered.token_ids)
        if ids is None:
            raise BadRequest(
                "this demonstration cannot be tokenised: with it the template renders the turns before it differently, "
                "or ends the turn differently; content that begins with a line break is one cause",
                param="demonstration",
            )
        return ids

    async def _dispatch(self, session: Session, request: Request, prompt: splice.Prompt, flight: Flight) -> Recorded:
        """Place the call in the tree and journal its intent."""
        where = tree.place(session.calls, prompt.token_ids, request.conversation, retokenised=prompt.retokenised)
        intent = Intent(
            call_id=request.id_prefix + secrets.token_hex(12),
            call_index=len(session.calls),
            parent_call_id=where.parent_call_id,
            segment=where.segment,
            fork_reason=where.fork_reason,
            body_digest=request.body_digest,
            idempotency_key=request.idempotency_key,
            messages=list(request.conversation.messages),
            tools=list(request.conversation.tools),
            template_kwargs=request.conversation.template_kwargs,
            sampling=recorded_sampling(prompt.rendered.sampling) if request.demonstration is None else {},
            prompt_token_ids=prompt.token_ids,
            token_route="generate" if request.demonstration is None else "demonstration",
            template_digest=session.row.template_digest,
            engine_version=session.row.engine_version,
            started_at=now(),
            kept=request.kept,
        )
        call = Recorded(intent)
        flight.calls.append(call)
        session.calls.append(call)  # before the first await: a call that runs beside this one must see it
        try:
            await self._journal.intent(session.session_id, intent)
        except JournalError as error:
            await self._sessions.mask(session, f"journal: {error}")
        return call

    async def _sample(
        self, engine: Engine, request: Request, prompt: splice.Prompt, completion: Completion, flight: Flight
    ) -> Answer:
        """Generate into `completion`, whole or step by step, and read the reply from all of its ids in either case."""
        sampling = prompt.rendered.sampling
        if request.stream:
            deltas = Deltas(
                engine,
                request.conversation,
                prompt.token_ids,
                request.stop,
                lambda text: flight.parts.put_nowait(Part(text)),
            )
            async for _ in engine.stream(prompt.token_ids, sampling, completion):
                await deltas.step(completion)
        else:
            await engine.generate(prompt.token_ids, sampling, completion)
        if completion.finish_reason not in ("stop", "length"):
            raise EngineTrouble(f"the engine ended the call with {completion.finish_reason!r}")
        read = await reply.read(
            engine, request.conversation, prompt.token_ids, completion, logprobs=request.logprobs
        )
        message = deltas.finish(read.message) if request.stream else read.message
        tokens = token_fields(completion)
        return Answer(
            status=read.status,
            message=message,
            finish_reason=read.finish_reason,
            ended_turn=completion.ended_turn,
            client_logprobs=read.logprobs,
            stop_sequence=completion.stop_reason if isinstance(completion.stop_reason, str) else None,
            **tokens,
        )

    async def _record(self, session: Session, call: Recorded, answer: Answer) -> None:
        """Journal an answer. Where that fails the client still gets it, and the episode is masked."""
        call.answer = answer
        if call.answered:
            session.remember(call)
        try:
            await self._journal.answer(call.intent.call_id, answer)
        except JournalError as error:
            await self._sessions.mask(session, f"journal: {error}")

    async def _fail(
        self,
        session: Session,
        calls: list[Recorded],
        completion: Completion,
        started: float,
        status: Status,
        cause: str,
    ) -> None:
        """Record how a dispatched call ended without an answer, with what had been sampled by then."""
        tokens = {**token_fields(completion), "token_status": "missing"}
        answer = Answer(status=status, latency_s=time.monotonic() - started, **{**tokens, "error": cause})
        for call in calls:
            await self._record(session, call, answer)


def token_fields(completion: Completion) -> dict[str, Any]:
    """Ids, log-probs and one weight version per id; `missing`, with the cause, where one is not as it must be."""
    ids, logprobs = completion.token_ids, completion.logprobs
    versions = [UNKNOWN] * len(ids)
    for label, start, end in completion.spans:
        if label.isdecimal():
            versions[start:end] = [int(label)] * len(versions[start:end])
    bad = next((n for n, value in enumerate(logprobs) if not math.isfinite(value) or value <= NO_LOGPROB), None)
    error = None
    if not ids or len(logprobs) != len(ids):
        error = f"{len(ids)} token ids and {len(logprobs)} log-probs came back"
    elif bad is not None:
        error = f"the log-prob of token {bad} is not a number"
    elif UNKNOWN in versions:
        labels = sorted({label for label, _, _ in completion.spans})
        error = f"weight version labels {labels} do not give every token a registered version"
    return {
        "completion_token_ids": ids,
        "logprobs": logprobs if bad is None and len(logprobs) == len(ids) else None,
        "weight_versions": versions,
        "token_status": "missing" if error else "exact",
        "error": error,
    }


def _demonstration(request: Request, ids: list[int]) -> Answer:
    message = request.demonstration
    assert message is not None
    return Answer(
        status=Status.OK,
        message=message,
        finish_reason="tool_calls" if message.get("tool_calls") else "stop",
        completion_token_ids=ids,
        weight_versions=[DEMONSTRATED] * len(ids),
        token_status="exact",  # noqa: S106 - a status, no secret
        ended_turn=True,
    )
