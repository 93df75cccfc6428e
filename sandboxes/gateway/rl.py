"""The online-RL routes, with AReaL's shapes: sessions, rewards, export. None of them calls a model."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lakehouse.records import Mode
from sandboxes.gateway import export
from sandboxes.gateway.access import Access
from sandboxes.gateway.bodies import parsed
from sandboxes.gateway.endpoints import Endpoint
from sandboxes.gateway.engines import Engines
from sandboxes.gateway.errors import BadRequest
from sandboxes.gateway.journal import Journal
from sandboxes.gateway.recorded import Recorded
from sandboxes.gateway.sessions import Session, Sessions


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


class RL:
    """Handlers over the sessions of one gateway."""

    def __init__(self, engines: Engines, journal: Journal, sessions: Sessions, access: Access) -> None:
        self._engines = engines
        self._journal = journal
        self._sessions = sessions
        self._access = access

    def routes(self) -> list[Endpoint]:
        """To be put into an application as they are."""
        return [
            Endpoint(
                "POST", "/grant_capacity", self.grant_capacity, key="operator", summary="Make room for one more session"
            ),
            Endpoint(
                "POST",
                "/rl/start_session",
                self.start_session,
                key="operator",
                body=StartSession,
                summary="Open a session; gives its model key and reward key",
            ),
            Endpoint(
                "POST",
                "/rl/set_reward",
                self.set_reward,
                key="reward",
                body=SetReward,
                summary="Append a reward to a call",
            ),
            Endpoint("POST", "/rl/end_session", self.end_session, key="session", summary="End the key's session"),
            Endpoint(
                "POST",
                "/export_trajectories",
                self.export_trajectories,
                key="operator",
                body=Export,
                summary="A session's rows with rewards; repeatable, deletes nothing",
            ),
            Endpoint(
                "GET",
                "/sessions/{session_id:path}/calls",
                self.session_calls,
                key="operator",
                summary="A session's recorded calls, token by token",
            ),
        ]

    async def grant_capacity(self, request: Request) -> Response:
        self._access.operator(request)
        return JSONResponse({"capacity": self._sessions.grant()})

    async def start_session(self, request: Request) -> Response:
        self._access.operator(request)
        body = await parsed(request, StartSession)
        facts = await self._engines.facts()
        await self._engines.admit(policy=body.mode == "policy")
        session, model_key, reward_key = await self._sessions.start(
            body.task_id, body.mode, body.api_key, engine_version=facts.version, template_digest=facts.template_digest
        )
        return JSONResponse({"session_id": session.session_id, "api_key": model_key, "reward_key": reward_key})

    async def set_reward(self, request: Request) -> Response:
        session = await self._access.session(request, "reward")
        body = await parsed(request, SetReward)
        call = _rewarded(session, body.interaction_id)
        await self._journal.reward(session.session_id, call.intent.call_id, body.reward)
        session.rewards.append((call.intent.call_id, body.reward))
        return JSONResponse({"message": "success"})

    async def end_session(self, request: Request) -> Response:
        session = await self._access.session(request, "model", "reward")
        await self._sessions.end(session, "ended by its owner")
        return JSONResponse({"message": "success", "interaction_count": sum(call.answered for call in session.calls)})

    async def export_trajectories(self, request: Request) -> Response:
        self._access.operator(request)
        body = await parsed(request, Export)
        session = await self._sessions.by_id(body.session_id)
        rows = export.trajectories(
            session, discount=body.discount, style=body.style, drop_retry_orphans=body.drop_retry_orphans
        )
        return JSONResponse({"interactions": rows})

    async def session_calls(self, request: Request) -> Response:
        self._access.operator(request)
        session = await self._sessions.by_id(request.path_params["session_id"])
        if session.state != "open":
            await self._sessions.settle(session)
        rows = [
            call.row(session.session_id, masked=session.masked) for call in session.calls if call.answer is not None
        ]
        return JSONResponse({"calls": rows})


def _rewarded(session: Session, call_id: str | None) -> Recorded:
    if call_id is None:
        last = session.last_answered()
        if last is None:
            raise BadRequest("this session has no answered call to reward", param="interaction_id")
        return last
    for call in session.calls:
        if call.intent.call_id == call_id and call.answered:
            return call
    raise BadRequest(f"no answered interaction {call_id!r} in this session", param="interaction_id")
