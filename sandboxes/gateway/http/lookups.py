"""What a client may ask beside calling the model: the models, a response it was given, how long a prompt would be."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sandboxes.gateway.calls import splice
from sandboxes.gateway.dialects.anthropic import CountRequest, Messages, MessagesError
from sandboxes.gateway.dialects.responses import find, response
from sandboxes.gateway.dialects.wire import check_model
from sandboxes.gateway.engines.pool import Engines
from sandboxes.gateway.errors import Busy, GatewayError
from sandboxes.gateway.http.access import Access
from sandboxes.gateway.http.bodies import read
from sandboxes.gateway.http.endpoints import Endpoint

ANTHROPIC = "anthropic-version"  # a header that tells whose shape a client reads
MOST_COUNTS = 16  # of one session at a time: each is a request or more to the engine, and no budget bounds them
EPOCH = "1970-01-01T00:00:00Z"  # as both APIs say it of a model whose age is not known


class Lookups:
    """Handlers over the sessions of one gateway. None of them is recorded."""

    def __init__(self, model: str, engines: Engines, access: Access) -> None:
        self._model = model
        self._engines = engines
        self._access = access
        self._messages = Messages()
        self._counting = Counter[str]()  # by session id

    def routes(self, prefix: str) -> list[Endpoint]:
        """To be put into an application as they are."""
        return [
            Endpoint(
                "GET",
                f"{prefix}/models",
                self.models,
                key="any",
                query=frozenset({"limit"}),
                summary="The model served here, in Anthropic's shape where the header anthropic-version is there",
            ),
            Endpoint("GET", prefix + "/models/{model:path}", self.one_model, key="any", summary="One model"),
            Endpoint(
                "GET",
                prefix + "/responses/{response_id}",
                self.one_response,
                key="model",
                summary="A response of this session, unless it was not to be stored",
            ),
            Endpoint(
                "POST",
                f"{prefix}/messages/count_tokens",
                self.count_tokens,
                key="model",
                body=CountRequest,
                errors=MessagesError,
                tell=self._messages.error,
                query=frozenset({"beta"}),
                summary="How many tokens a prompt would have",
            ),
        ]

    async def models(self, request: Request) -> Response:
        try:
            await self._anyone(request)
        except GatewayError as error:
            return self._failed(request, error)
        model = self._described(request)
        if ANTHROPIC in request.headers:
            ends = {"first_id": self._model, "last_id": self._model}
            return JSONResponse({"data": [model], "has_more": False, **ends})
        return JSONResponse({"object": "list", "data": [model]})

    async def one_model(self, request: Request) -> Response:
        try:
            await self._anyone(request)
            check_model(request.path_params["model"], self._model)
        except GatewayError as error:
            return self._failed(request, error)
        return JSONResponse(self._described(request))

    async def one_response(self, request: Request) -> Response:
        session = await self._access.session(request, "model")
        return JSONResponse(response(find(session, request.path_params["response_id"], param="response_id")))

    async def count_tokens(self, request: Request) -> Response:
        """The prompt is put together as for a call, recorded ids and all, so that the number is the call's own.

        It is no call: nothing is sampled or recorded, no budget is used or asked, and a gateway that stops still counts.
        """
        try:
            session = await self._access.session(request, "model")
            session.check_open()
            with self._one_more(session.session_id):
                conversation = self._messages.counted(await read(request), request.headers, session, self._model)
                async with self._engines.serving(session) as engine:
                    prompt = await splice.build(engine, conversation, session.by_prefix, {})
        except GatewayError as error:
            return JSONResponse(self._messages.error(error), status_code=error.status, headers=error.headers)
        return JSONResponse({"input_tokens": len(prompt.token_ids)})

    @contextmanager
    def _one_more(self, session_id: str) -> Iterator[None]:
        if self._counting[session_id] >= MOST_COUNTS:
            raise Busy(f"{MOST_COUNTS} prompts of this session are being counted; wait for one")
        self._counting[session_id] += 1
        try:
            yield
        finally:
            self._counting[session_id] -= 1
            if not self._counting[session_id]:
                del self._counting[session_id]

    async def _anyone(self, request: Request) -> None:
        """Unauthorized where the request carries neither the operator key nor a session's."""
        if not self._access.is_operator(request):
            await self._access.session(request, "model", "reward")

    def _described(self, request: Request) -> dict[str, Any]:
        if ANTHROPIC in request.headers:
            told = {"id": self._model, "display_name": self._model, "created_at": EPOCH, "lifecycle": "active"}
            return {"type": "model", **told}
        return {"id": self._model, "object": "model", "created": 0, "owned_by": "lakeloop"}

    def _failed(self, request: Request, error: GatewayError) -> Response:
        body = self._messages.error(error) if ANTHROPIC in request.headers else error.body
        return JSONResponse(body, status_code=error.status, headers=error.headers)
