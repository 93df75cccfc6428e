"""One model call, from a validated request to a recorded answer. `Calls._run` is the main path, top-down."""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from lakehouse.records import Status, now
from sandboxes.gateway.calls import choices, splice
from sandboxes.gateway.calls.request import Request
from sandboxes.gateway.engines import raw
from sandboxes.gateway.engines.engine import Engine, recorded_sampling
from sandboxes.gateway.engines.pool import Engines
from sandboxes.gateway.engines.split import check_served
from sandboxes.gateway.engines.tokens import Completion, token_fields
from sandboxes.gateway.errors import BadRequest, Busy, EngineTrouble, GatewayError
from sandboxes.gateway.sessions.flight import Flight
from sandboxes.gateway.sessions.journal import Journal, JournalError
from sandboxes.gateway.sessions.recorded import DEMONSTRATED, Answer, Intent, Recorded
from sandboxes.gateway.sessions.sessions import Session, Sessions

log = logging.getLogger(__name__)
Result = TypeVar("Result")


@dataclass
class Sampled:
    """What came of a request's choices until now, one completion each, and when it began."""

    completions: list[Completion]
    started: float = field(default_factory=time.monotonic)

    @property
    def latency_s(self) -> float:
        return time.monotonic() - self.started


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
        _check(request, self._max_running)
        try:
            replay = await self._admitted(session, request)
        except Busy:
            _left(session, request)
            raise
        flight = Flight(
            lambda flight: self._answered_before(replay, flight) if replay else self._run(session, request, flight),
            0 if replay else request.n,
            request.body_digest,
            request.idempotency_key,
        )
        flight.task.add_done_callback(lambda _: None if _settled(flight) else _left(session, request))
        for running in (self._running, session.flights):
            running.add(flight)
            flight.task.add_done_callback(lambda _, running=running: running.discard(flight))  # type: ignore[misc]
        return flight

    async def _admitted(self, session: Session, request: Request) -> list[Recorded] | None:
        """The recorded calls to be told again; None where the request is to run, for which there is room."""
        replay = await self._replay(session, request)
        if replay is None and sum(flight.choices for flight in self._running) + request.n > self._max_running:
            raise Busy(f"{self._max_running} calls are running, the most this gateway takes")
        session.check_open()  # waiting for the replay may have taken a while
        if replay is None:
            await self._within_budget(session, lambda: session.budget.check(session.flights, choices=request.n))
        return replay

    async def _within_budget(self, session: Session, check: Callable[[], None]) -> None:
        """Refuse what a budget does not allow, and record that it ended the session's calls."""
        try:
            check()
        except BadRequest as error:
            await self._sessions.note_budget(session, error)
            raise

    async def _answered_before(self, calls: list[Recorded], flight: Flight) -> list[Recorded]:
        flight.calls = calls
        return flight.calls

    async def _replay(self, session: Session, request: Request) -> list[Recorded] | None:
        """The answered calls, one per choice, that this request repeats: same idempotency key, or an SDK's retry.

        Where the first try still runs, also one that is not dispatched yet, its answer is this one's. Where it fails, one
        of those that waited is the next try, and the others wait for that one. A retry of a try that failed is no
        repetition of an equal call beside it. Of several that were answered the newest counts.
        """
        deadline = time.monotonic() + self._deadline_s
        while True:
            if request.idempotency_key is None and request.is_retry and session.tries.taken_up(request.body_digest):
                return None
            running = next((flight for flight in session.flights if _repeats(request, flight)), None)
            if running is None:
                break
            if not (await asyncio.wait([running.task], timeout=max(0.0, deadline - time.monotonic())))[0]:
                raise Busy("an earlier try of this call is still running")
        for call in reversed(session.calls):
            if _repeats(request, call.intent):
                group = [one for one in session.calls if one.intent.first_choice == call.intent.first_choice]
                if all(one.answered for one in group):
                    return group
        return None

    async def _run(self, session: Session, request: Request, flight: Flight) -> list[Recorded]:
        """Render and splice, journal the intent, generate, read the reply, journal the answer."""
        sampled = Sampled([Completion() for _ in range(request.n)])
        session.used_at = sampled.started
        try:
            async with self._engines.serving(session) as engine, asyncio.timeout(self._deadline_s):
                wanted = self._engines.wanted(session)
                request = replace(request, conversation=await raw.spelled(engine, request.conversation))
                prompt = await splice.build(engine, request.conversation, session.by_prefix, request.sampling)
                demonstrated = await self._demonstrated(engine, request, prompt)
                sampling = prompt.rendered.sampling
                await self._within_budget(
                    session, lambda: session.budget.fit(prompt.token_ids, sampling, choices=request.n)
                )
                await self._dispatch(session, request, prompt, flight)
                if demonstrated is None:
                    answers = await self._sample(engine, request, prompt, sampled, flight, wanted)
                else:
                    answers = [_demonstration(request, demonstrated, sampled)]
        except TimeoutError:
            trouble = EngineTrouble(f"the engine gave no answer within {self._deadline_s:.0f} s")
            await self._fail(session, flight.calls, sampled, Status.INFRA_ERROR, trouble.message)
            raise trouble from None
        except GatewayError as error:
            status = Status.INFRA_ERROR if isinstance(error, EngineTrouble) else Status.AGENT_ERROR
            await self._fail(session, flight.calls, sampled, status, error.message)
            raise
        except asyncio.CancelledError:
            await self._fail(session, flight.calls, sampled, *flight.ending)
            raise
        except Exception as error:  # whatever the engine sent: the call is recorded, the client may try again
            trouble = EngineTrouble(f"the engine's answer could not be used: {type(error).__name__}: {error}")
            await self._fail(session, flight.calls, sampled, Status.INFRA_ERROR, trouble.message)
            raise trouble from error
        await self._record(session, list(zip(flight.calls, answers, strict=True)))
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

    async def _dispatch(self, session: Session, request: Request, prompt: splice.Prompt, flight: Flight) -> None:
        """Place one call per choice in the tree and journal their intents."""
        for choice in range(request.n):
            call = Recorded(self._intent(session, request, prompt, choice, flight.calls), said=prompt.said)
            flight.calls.append(call)
            session.calls.append(call)  # before the first await: a call that runs beside this one must see it
        try:
            await self._journal.intents(session.session_id, [call.intent for call in flight.calls])
        except JournalError as error:
            await self._sessions.mask(session, f"journal: {error}")

    @staticmethod
    def _intent(
        session: Session, request: Request, prompt: splice.Prompt, choice: int, before: list[Recorded]
    ) -> Intent:
        """What is about to be sent for one choice; `before`: the calls of the choices before it."""
        conversation, demonstrated = request.conversation, request.demonstration is not None
        where = session.tree.place(prompt.token_ids, conversation, retokenised=prompt.retokenised and not choice)
        call_id = request.id_prefix + secrets.token_hex(12)
        sampling = recorded_sampling(request.sampling_of(choice, prompt.rendered.sampling))
        return Intent(
            call_id=call_id,
            call_index=len(session.calls),
            first_choice=before[0].intent.call_id if before else call_id,
            parent_call_id=where.parent_call_id,
            segment=where.segment,
            fork_reason="sibling" if choice else where.fork_reason,
            body_digest=request.body_digest,
            idempotency_key=request.idempotency_key,
            messages=list(conversation.messages),
            tools=list(conversation.tools),
            template_kwargs=conversation.template_kwargs,
            sampling={} if demonstrated else sampling,
            prompt_token_ids=prompt.token_ids,
            token_route="demonstration" if demonstrated else prompt.route,
            template_digest=session.row.template_digest,
            engine_version=session.row.engine_version,
            started_at=now(),
            kept=request.kept,
        )

    async def _sample(
        self,
        engine: Engine,
        request: Request,
        prompt: splice.Prompt,
        sampled: Sampled,
        flight: Flight,
        wanted: int | None,
    ) -> list[Answer]:
        """All choices at once, by weights of the version `wanted`.

        Where one fails, so does the request: a client gets all of its choices or none.
        """
        vocabulary = (await engine.facts()).vocabulary

        async def one(choice: int, completion: Completion) -> Answer:
            read = await choices.sample(engine, request, prompt, choice, completion, flight.parts.put_nowait)
            await engine.settle(completion)
            check_served(wanted, {label for label, _, _ in completion.spans})
            return Answer(
                status=read.status,
                message=read.message,
                finish_reason=read.finish_reason,
                ended_turn=completion.ended_turn,
                client_logprobs=read.logprobs,
                stop_sequence=completion.stop_reason if isinstance(completion.stop_reason, str) else None,
                latency_s=sampled.latency_s,
                **token_fields(completion, vocabulary),
            )

        if request.n == 1:  # most are: no task of its own
            return [await one(0, sampled.completions[0])]
        return await together(one(choice, completion) for choice, completion in enumerate(sampled.completions))

    async def _record(self, session: Session, ended: Sequence[tuple[Recorded, Answer]]) -> None:
        """Journal the answers of a request's choices. Where that fails the client still gets them, and the episode is masked.

        All at once and before anything is waited for: a client that leaves now must not leave a choice without its end.
        """
        for call, answer in ended:
            call.answer = answer
            if answer.token_status == "missing" and answer.status != Status.CANCELLED:  # noqa: S105 - a status, no secret
                # Of a failure its status only: an engine's message may quote what was said. The journal has it.
                told = answer.error if answer.message is not None else answer.status
                log.error("session %s, call %s has no exact tokens: %s", session.session_id, call.intent.call_id, told)
            if call.answered:
                session.remember(call)
        try:
            answers = [(call.intent.call_id, answer) for call, answer in ended]
            await self._journal.answers(session.session_id, answers)
        except JournalError as error:
            await self._sessions.mask(session, f"journal: {error}")

    async def _fail(
        self, session: Session, calls: list[Recorded], sampled: Sampled, status: Status, cause: str
    ) -> None:
        """Record how dispatched calls ended without an answer, with what had been sampled by then."""
        ended = []
        for call, completion in zip(calls, sampled.completions, strict=False):  # no call where nothing was dispatched
            tokens = {**token_fields(completion), "token_status": "missing", "error": cause}
            ended.append((call, Answer(status=status, latency_s=sampled.latency_s, **tokens)))
        if ended:
            await self._record(session, ended)


async def together(work: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """All results, in order. Where one fails the others are cancelled first."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _repeats(request: Request, earlier: Flight | Intent) -> bool:
    """Whether a request is sent again that was sent before. BadRequest where its key stands for another one."""
    key, same_body = request.idempotency_key, earlier.body_digest == request.body_digest
    if key is None and earlier.idempotency_key is None:
        return same_body and request.is_retry
    if key != earlier.idempotency_key:  # calls of equal bodies are told apart by their keys
        return False
    if not same_body:
        raise BadRequest(f"idempotency key {key!r} was used with another body", param="Idempotency-Key")
    return True


def _settled(flight: Flight) -> bool:
    """Whether its client has an answer, or one is on record for it, or an error with which it need not come again."""
    if flight.calls and all(call.answered for call in flight.calls):
        return True
    error = None if flight.task.cancelled() else flight.task.exception()
    return error is not None and not getattr(error, "retry", True)


def _left(session: Session, request: Request) -> None:
    """Note that a request has no answer."""
    if request.idempotency_key is None:
        session.tries.unanswered(request.body_digest)


def _check(request: Request, max_running: int) -> None:
    """BadRequest for what contradicts itself, in whatever dialect it was said."""
    choice, tools = request.conversation.tool_choice, request.conversation.tools
    if request.n > max_running:
        raise BadRequest(f"`n` is {request.n}; this gateway runs {max_running} calls at once", param="n")
    if request.n > 1 and request.demonstration is not None:
        raise BadRequest("a demonstration is one answer: `n` must be 1", param="n")
    if choice not in ("auto", "none") and not tools:
        raise BadRequest("this `tool_choice` needs `tools`", param="tool_choice")
    if isinstance(choice, dict):
        names = [tool["function"]["name"] for tool in tools]
        if choice["function"]["name"] not in names:
            raise BadRequest(
                f"`tool_choice` names {choice['function']['name']!r}; the tools are {', '.join(names)}",
                param="tool_choice",
            )


def _demonstration(request: Request, ids: list[int], sampled: Sampled) -> Answer:
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
        latency_s=sampled.latency_s,
    )
