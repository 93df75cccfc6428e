"""The operator's routes over the engines: how each is, and drain, pause, resume, prove, add, remove."""

import asyncio
import time
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sandboxes.gateway.engines.member import Member
from sandboxes.gateway.engines.pool import LONGEST_PAUSE_S, Engines
from sandboxes.gateway.engines.split import Split
from sandboxes.gateway.errors import BadRequest
from sandboxes.gateway.http.access import Access
from sandboxes.gateway.http.bodies import parsed
from sandboxes.gateway.http.endpoints import Endpoint, Handler
from sandboxes.gateway.sessions.journal import Journal
from sandboxes.gateway.settings import check_upstream

Body = TypeVar("Body", bound="Which")
LONGEST_SPLIT_S = 86_400.0


class Which(BaseModel):
    model_config = ConfigDict(extra="forbid")

    url: str = Field(min_length=1, max_length=2048)


class Pause(Which):
    for_s: float = Field(default=300.0, ge=0, le=LONGEST_PAUSE_S)  # then it ends by itself; 0 ends it now


class Proven(Which):
    version: int = Field(ge=0)


class Parted(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    champion: int = Field(ge=0)
    challenger: int = Field(ge=0)
    share: float = Field(
        ge=0, le=1
    )  # of the new sessions, for the challenger; the rest, and all from before, the champion's
    for_s: float = Field(default=300.0, gt=0, le=LONGEST_SPLIT_S)  # then the challenger gets no new one any more


class Fleet:
    """Handlers over the engines of one gateway. Each answers with the engine as it is then."""

    def __init__(self, engines: Engines, journal: Journal, access: Access, allow_upstream: list[str]) -> None:
        self._engines = engines
        self._journal = journal
        self._access = access
        self._allow_upstream = allow_upstream

    def routes(self) -> list[Endpoint]:
        """To be put into an application as they are."""
        return [
            Endpoint(
                "GET", "/engines", self.engines, key="operator", summary="How each engine is, and the split of sessions"
            ),
            Endpoint(
                "POST",
                "/engines/split",
                self.split,
                key="operator",
                body=Parted,
                summary="A share of the new sessions for one version, the rest for another; whole sessions keep to theirs",
            ),
            Endpoint(
                "POST", "/engines/unsplit", self.unsplit, key="operator", summary="New sessions go to any engine again"
            ),
            self._order("drain", self.drain, Which, "No new session for an engine; those it has go on"),
            self._order("pause", self.pause, Pause, "Hold an engine's calls back, as while its weights are swapped"),
            self._order("resume", self.resume, Which, "End an engine's pause or draining"),
            self._order(
                "proven", self.proven, Proven, "An engine provably serves a version: believe its weights again"
            ),
            self._order("doubted", self.doubted, Which, "Nobody knows an engine's weights until a version is proven"),
            self._order("add", self.add, Which, "One more engine, which must be like the others"),
            self._order("remove", self.remove, Which, "One engine less; the calls it runs go on"),
        ]

    @staticmethod
    def _order(name: str, handler: Handler, body: type[Which], summary: str) -> Endpoint:
        return Endpoint("POST", f"/engines/{name}", handler, key="operator", body=body, summary=summary)

    async def engines(self, request: Request) -> Response:
        self._access.operator(request)
        return await self._all()

    async def split(self, request: Request) -> Response:
        self._access.operator(request)
        asked = await parsed(request, Parted)
        if asked.champion == asked.challenger:
            raise BadRequest("champion and challenger are one version", param="challenger")
        until = time.time() + asked.for_s
        await self._engines.split(
            Split(champion=asked.champion, challenger=asked.challenger, share=asked.share, until=until)
        )
        return await self._all()

    async def unsplit(self, request: Request) -> Response:
        self._access.operator(request)
        await self._engines.split(None)
        return await self._all()

    async def drain(self, request: Request) -> Response:
        url = (await self._asked(request, Which)).url
        self._engines.drain(url)
        return self._now(url)

    async def pause(self, request: Request) -> Response:
        asked = await self._asked(request, Pause)
        await self._engines.pause(asked.url, asked.for_s)
        return self._now(asked.url)

    async def resume(self, request: Request) -> Response:
        url = (await self._asked(request, Which)).url
        await self._engines.resume(url)
        return self._now(url)

    async def proven(self, request: Request) -> Response:
        asked = await self._asked(request, Proven)
        await self._engines.prove(asked.url, asked.version)
        return self._now(asked.url)

    async def doubted(self, request: Request) -> Response:
        url = (await self._asked(request, Which)).url
        self._engines.doubt(url)
        return self._now(url)

    async def add(self, request: Request) -> Response:
        url = (await self._asked(request, Which)).url
        try:
            await asyncio.to_thread(check_upstream, url, self._allow_upstream)
        except ValueError as error:
            raise BadRequest(str(error), param="url") from error
        await self._engines.add(url)
        return self._now(url)

    async def remove(self, request: Request) -> Response:
        url = (await self._asked(request, Which)).url
        self._engines.remove(url)
        return await self._all()

    async def _asked(self, request: Request, shape: type[Body]) -> Body:
        self._access.operator(request)
        return await parsed(request, shape)

    async def _all(self) -> Response:
        split = self._engines.parted
        return JSONResponse(
            {
                "engines": [shown(member) for member in self._engines.members],
                "split": split.model_dump() if split else None,
                "sessions": await self._journal.open_by_version() if split else {},
            }
        )

    def _now(self, url: str) -> Response:
        return JSONResponse(shown(self._engines.member(url)))


def shown(member: Member) -> dict[str, Any]:
    """One engine, for people and programs. `running`: calls of the process that answers."""
    fault = member.fault()
    return {
        "url": member.url,
        "state": member.state,
        "reason": f"the engine at {member.url} {fault[1]}" if fault else None,
        "weight_version": member.label,
        "running": member.running,
        "engine_version": member.facts.version if member.facts else None,
        "template_digest": member.facts.template_digest if member.facts else None,
        "last_error": member.last_error,
    }
