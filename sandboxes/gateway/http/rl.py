"""The online-RL routes, with AReaL's shapes: sessions, rewards, export. None of them calls a model."""

import asyncio
from dataclasses import asdict
from datetime import timedelta
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lakehouse.records import Mode, now
from sandboxes.gateway.engines.pool import Engines
from sandboxes.gateway.errors import BadRequest
from sandboxes.gateway.http.access import Access
from sandboxes.gateway.http.bodies import parsed
from sandboxes.gateway.http.endpoints import Endpoint, Handler, Key
from sandboxes.gateway.http.front import QuickJson
from sandboxes.gateway.sessions import export
from sandboxes.gateway.sessions.budget import Limits
from sandboxes.gateway.sessions.journal import Journal
from sandboxes.gateway.sessions.keys import same
from sandboxes.gateway.sessions.lines import links
from sandboxes.gateway.sessions.report import report
from sandboxes.gateway.sessions.schema import RewardRow
from sandboxes.gateway.sessions.sessions import Session, Sessions

YEAR_S = 366 * 86_400.0
PAGE = 1000  # sessions that one answer lists at most
MOST_REWARD = 1e9  # either way: sums over a session, and a trainer's squares of them, stay numbers


class StartSession(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    task_id: str = Field(min_length=1, max_length=512)
    api_key: str | None = Field(
        default=None, min_length=8, max_length=512, pattern=r"^[\x21-\x7e]+$"
    )  # as a header has it
    mode: Mode = "policy"
    limits: Limits = Limits()
    key_life_s: float | None = Field(default=None, gt=0, le=YEAR_S)  # of both keys; None: they do not expire
    subject: str | None = Field(default=None, min_length=1, max_length=512)  # whose data it holds: erasure goes by it
    version: int | None = Field(default=None, ge=0)  # of the weights that shall answer, as an evaluation asks for


class SetReward(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    interaction_id: str | None = None  # with scope "call", None is the last answered call
    reward: float = Field(ge=-MOST_REWARD, le=MOST_REWARD)
    scope: Literal["call", "episode"] = "call"
    labeller: str = Field(default="", max_length=256)
    reason: str = Field(default="", max_length=8192)


class Export(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    session_id: str
    discount: float = Field(default=1.0, ge=0, le=1)
    style: Literal["individual", "concat"] = "individual"
    drop_retry_orphans: bool = False


class SealSession(BaseModel):
    model_config = ConfigDict(extra="forbid")

    session_id: str


class RotateKey(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    session_id: str
    kind: Literal["model", "reward"] = "model"
    key_life_s: float | None = Field(default=None, gt=0, le=YEAR_S)


class Prune(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    sealed_for_s: float = Field(ge=0, le=100 * YEAR_S)


class RL:
    """Handlers over the sessions of one gateway."""

    def __init__(self, engines: Engines, journal: Journal, sessions: Sessions, access: Access) -> None:
        self._engines = engines
        self._journal = journal
        self._sessions = sessions
        self._access = access

    def routes(self) -> list[Endpoint]:
        """To be put into an application as they are."""
        posts: list[tuple[str, Handler, Key, type[BaseModel] | None, str]] = [
            ("/grant_capacity", self.grant_capacity, "operator", None, "Make room for one more session"),
            (
                "/rl/start_session",
                self.start_session,
                "operator",
                StartSession,
                "Open a session; gives its model key and reward key",
            ),
            ("/rl/set_reward", self.set_reward, "reward", SetReward, "Append a reward to a call or the whole episode"),
            ("/rl/end_session", self.end_session, "session", None, "End the key's session"),
            ("/rl/seal_session", self.seal_session, "operator", SealSession, "Close a session's record for good"),
            (
                "/rl/shred_session",
                self.shred_session,
                "operator",
                SealSession,
                "Seal a session whose episode has landed, and destroy the key of its record: nobody can read it any more",
            ),
            ("/rl/rotate_key", self.rotate_key, "operator", RotateKey, "A new key for a session; the old one stops"),
            ("/rl/rotate_operator_key", self.rotate_operator_key, "operator", None, "A new operator key"),
            ("/rl/reset_stop", self.reset_stop, "operator", None, "Start sessions again after too many were lost"),
            ("/rl/prune", self.prune, "operator", Prune, "Delete the records of sessions sealed so long ago"),
            (
                "/export_trajectories",
                self.export_trajectories,
                "operator",
                Export,
                "A session's rows with rewards; repeatable, deletes nothing",
            ),
        ]
        gets: list[tuple[str, Handler, str]] = [
            ("/calls", self.session_calls, "A session's recorded calls, token by token"),
            ("/rewards", self.session_rewards, "A session's rewards as they were given"),
            ("", self.session_report, "A session's state, capture, budgets, keys and tree"),  # last: it takes any path
        ]
        listed = Endpoint(
            "GET",
            "/sessions",
            self.closed_sessions,
            key="operator",
            query=frozenset({"after", "limit"}),
            summary="Sessions that have ended or are sealed, by number; next is what to ask for after, null at the end",
        )
        return [
            *(
                Endpoint("POST", path, handler, key=key, body=body, summary=summary)
                for path, handler, key, body, summary in posts
            ),
            listed,
            *(
                Endpoint("GET", "/sessions/{session_id:path}" + path, handler, key="operator", summary=summary)
                for path, handler, summary in gets
            ),
        ]

    async def grant_capacity(self, request: Request) -> Response:
        self._access.operator(request)
        return JSONResponse({"capacity": self._sessions.grant()})

    async def start_session(self, request: Request) -> Response:
        self._access.operator(request)
        body = await parsed(request, StartSession)
        if body.api_key and same(body.api_key, self._access.operator_key):
            raise BadRequest("`api_key` is the operator key, which opens everything: give another", param="api_key")
        self._sessions.stop.check()
        facts = await self._engines.facts()
        policy = body.mode == "policy"
        if body.version is not None and not policy:
            raise BadRequest("a demonstration samples nothing: name no `version`", param="version")
        await self._engines.admit(policy=policy, version=body.version)
        session, model_key, reward_key = await self._sessions.start(
            body.task_id,
            body.mode,
            body.api_key,
            engine_version=facts.version,
            template_digest=facts.template_digest,
            limits=body.limits,
            key_life_s=body.key_life_s,
            subject=body.subject,
            version=lambda session_id: (
                self._engines.assigned(session_id) if policy and body.version is None else body.version
            ),
        )
        return JSONResponse({"session_id": session.session_id, "api_key": model_key, "reward_key": reward_key})

    async def set_reward(self, request: Request) -> Response:
        session = await self._access.session(request, "reward")
        body = await parsed(request, SetReward)
        await self._sessions.reward(
            session,
            RewardRow(
                scope=body.scope,
                call_id=_rewarded(session, body),
                reward=body.reward,
                labeller=body.labeller,
                reason=body.reason,
                given_at=now().isoformat(),
            ),
        )
        return JSONResponse({"message": "success"})

    async def end_session(self, request: Request) -> Response:
        session = await self._access.session(request, "model", "reward")
        await self._sessions.end(session, "ended by its owner")
        return JSONResponse({"message": "success", "interaction_count": sum(call.answered for call in session.calls)})

    async def seal_session(self, request: Request) -> Response:
        self._access.operator(request)
        body = await parsed(request, SealSession)
        session = await self._sessions.by_id(body.session_id)
        await self._sessions.seal(session)
        return JSONResponse({"message": "success", "interaction_count": sum(call.answered for call in session.calls)})

    async def shred_session(self, request: Request) -> Response:
        self._access.operator(request)
        body = await parsed(request, SealSession)
        session = await self._sessions.by_id(body.session_id)
        await self._sessions.shred(session)
        return JSONResponse({"message": "success", "interaction_count": sum(call.answered for call in session.calls)})

    async def rotate_key(self, request: Request) -> Response:
        self._access.operator(request)
        body = await parsed(request, RotateKey)
        session = await self._sessions.by_id(body.session_id)
        key = await self._sessions.rotate_key(session, body.kind, body.key_life_s)
        return JSONResponse({"session_id": session.session_id, "kind": body.kind, "key": key})

    async def rotate_operator_key(self, request: Request) -> Response:
        self._access.operator(request)
        return JSONResponse({"operator_key": self._access.rotate_operator_key()})

    async def reset_stop(self, request: Request) -> Response:
        self._access.operator(request)
        return JSONResponse({"message": "success", "was": self._sessions.stop.reset()})

    async def prune(self, request: Request) -> Response:
        self._access.operator(request)
        body = await parsed(request, Prune)
        sessions, calls = await self._journal.prune(now() - timedelta(seconds=body.sealed_for_s))
        return JSONResponse({"sessions": sessions, "calls": calls})

    async def export_trajectories(self, request: Request) -> Response:
        self._access.operator(request)
        body = await parsed(request, Export)
        session = await self._sessions.by_id(body.session_id)

        def told() -> Response:
            rows = export.trajectories(
                session, discount=body.discount, style=body.style, drop_retry_orphans=body.drop_retry_orphans
            )
            return QuickJson({"interactions": rows})

        return await asyncio.to_thread(told)  # of a long session it takes a second, for which every stream would wait

    async def closed_sessions(self, request: Request) -> Response:
        self._access.operator(request)
        after = _whole(request, "after", 0, least=0, most=2**62)
        limit = _whole(request, "limit", PAGE, least=1, most=PAGE)
        found = await self._journal.closed_sessions(after, limit)
        told = (
            "n",
            "session_id",
            "task_id",
            "mode",
            "state",
            "reason",
            "started_at",
            "ended_at",
            "sealed_at",
            "subject",
            "version",
        )
        rows = [{**{name: getattr(row, name) for name in told}, "rewards": rewards} for row, rewards in found]
        return JSONResponse({"sessions": rows, "next": rows[-1]["n"] if len(rows) == limit else None})

    async def session_calls(self, request: Request) -> Response:
        self._access.operator(request)
        session = await self._sessions.by_id(request.path_params["session_id"])
        if session.state != "open":
            await self._sessions.settle(session)
        calls, masked = [call for call in session.calls if call.answer is not None], session.masked

        def told() -> Response:
            continues = links([call for call in calls if call.answered])
            rows = [
                call.row(session.session_id, masked=masked, continues=continues.get(call.intent.call_id))
                for call in calls
            ]
            return QuickJson({"calls": rows})

        return await asyncio.to_thread(told)  # as with an export

    async def session_rewards(self, request: Request) -> Response:
        self._access.operator(request)
        session = await self._sessions.by_id(request.path_params["session_id"])
        rows = [asdict(row) for row in session.rewards]
        return JSONResponse({"rewards": [{**row, "interaction_id": row.pop("call_id")} for row in rows]})

    async def session_report(self, request: Request) -> Response:
        self._access.operator(request)
        session = await self._sessions.by_id(request.path_params["session_id"])
        return JSONResponse(await report(session, await self._sessions.keys(session)))


def _whole(request: Request, name: str, default: int, *, least: int, most: int) -> int:
    """A whole number in the query. BadRequest where it is something else."""
    text = request.query_params.get(name, str(default))
    if not text.isdecimal() or len(text) > 20 or not least <= int(text) <= most:
        raise BadRequest(f"{name} must be a whole number from {least} to {most}", param=name)
    return int(text)


def _rewarded(session: Session, body: SetReward) -> str | None:
    """The id of the call that a reward is for, None for the whole episode. BadRequest where there is no such call."""
    call_id = body.interaction_id
    if body.scope == "episode":
        if call_id is not None:
            raise BadRequest("a reward with scope 'episode' names no interaction_id", param="interaction_id")
        return None
    if call_id is None:
        last = session.last_answered()
        if last is None:
            raise BadRequest("this session has no answered call to reward", param="interaction_id")
        return last.intent.call_id
    if not any(call.intent.call_id == call_id and call.answered for call in session.calls):
        raise BadRequest(f"no answered interaction {call_id!r} in this session", param="interaction_id")
    return call_id
