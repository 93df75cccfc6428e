"""Trajectories to judge, and an endpoint that says what a test scripts."""

import json
from collections.abc import Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from lakehouse.records import Action, Call, Episode, Evidence, Problem
from lakehouse.trajectory import Trajectory, Turn
from lakehouse.write import Writer
from sandboxes.gateway.server.listen import serving

AT = datetime(2026, 1, 1, tzinfo=UTC)


def told(content, **about):
    """A chat completion that says this."""
    message = {"role": "assistant", "content": content, **about.pop("message", {})}
    return {
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", **about}],
        "usage": {"total_tokens": 7},
    }


def verdict(score, reason="seen"):
    return told(json.dumps({"score": score, "reason": reason}))


class Endpoint:
    """Gives the replies in turn, the last one for ever: a status, a completion, text, or a function of the request."""

    def __init__(self, replies):
        self.replies, self.requests, self.url = list(replies), [], ""

    async def complete(self, request: Request) -> Response:
        self.requests.append(json.loads(await request.body()) | {"authorization": request.headers.get("authorization")})
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Callable):
            reply = await reply(self.requests[-1])
        if isinstance(reply, int):
            return PlainTextResponse("no", status_code=reply, headers={"retry-after": "0"})
        return PlainTextResponse(reply) if isinstance(reply, str) else JSONResponse(reply)


@pytest.fixture
def endpoint():
    """`async with endpoint(reply, ...) as scripted`: a real HTTP server on this machine; its URL is `scripted.url`."""

    @asynccontextmanager
    async def serve(*replies):
        scripted = Endpoint(replies)
        app = Starlette(routes=[Route("/v1/chat/completions", scripted.complete, methods=["POST"])])
        async with serving(app) as url:
            scripted.url = f"{url}/v1"
            yield scripted

    return serve


@pytest.fixture
def played() -> Trajectory:
    """An episode of two turns, the first with a tool call."""
    own = {"episode_id": "ep-1", "attempt_id": "a"}
    problem = Problem(
        problem_id="p", kind="search", source="s", split="train", title="t", prompt="Who wrote it?", spec="{}",
        licence="CC0-1.0", allowed_uses=["training"], difficulty=0.5, oracle_passed=True, null_failed=True, created_at=AT,
    )  # fmt: skip
    episode = Episode(
        **own, run_id="r", group_id="g", problem_id="p", problem_kind="search", split="train", sample_index=0, agent="a",
        backend="none", mode="policy", purpose="train", status="ok", error=None, session_id="s", model_name="toy",
        model_version=1, n_calls=2, n_prompt_tokens=0, n_completion_tokens=0, duration_s=1, started_at=AT, ended_at=AT,
    )  # fmt: skip
    calls = [
        Call(
            **own, call_id=f"c{n}", session_id="s", call_index=n, parent_call_id=None, segment=0, fork_reason=None,
            prompt_token_ids=[], completion_token_ids=[], logprobs=[], weight_versions=[], token_status="exact",
            token_route="generate", status="ok", finish_reason="stop", request_messages="[]", tools="[]", sampling="{}",
            response_message=json.dumps({"role": "assistant", "content": text}), template_digest="d", engine_version="0",
            latency_s=0.1, started_at=AT,
        )
        for n, text in enumerate(("I will look it up.", "Jane Austen"))
    ]  # fmt: skip
    action = Action(
        **own, action_index=0, call_id="c0", tool="search", arguments='{"query": "it"}', observation="A page about it",
        is_error=False, duration_s=0.1, started_at=AT,
    )  # fmt: skip
    facts = [
        Evidence(**own, name=name, value=value, producer=producer, created_at=AT)
        for name, value, producer in (("answer", '{"match": true}', "search 1"), ("other", '{"score": 0}', "llm x 1"))
    ]
    return Trajectory(episode, problem, [Turn(calls[0], [action]), Turn(calls[1], [])], [], facts, [])


@pytest.fixture
def land(played, tmp_path, monkeypatch):
    """Lands so many episodes like `played`, without evidence, in the lake of a home folder of this test's own."""
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    monkeypatch.delenv("LAKELOOP_LAKE", raising=False)

    def land(count, **changes):
        run = changes.get("run_id", "r")
        episodes, calls = [], []
        for n in range(count):
            own = {"episode_id": f"ep-{run}-{changes.get('status', 'ok')}-{n}"}
            episodes.append(played.episode.model_copy(update=own | {"sample_index": n} | changes))
            calls += [turn.call.model_copy(update=own) for turn in played.turns]
        assert Writer().land(episodes, calls, [], []).episodes == count

    return land
