"""An OpenAI-compatible endpoint that answers what a test tells it to: agents need nothing else."""

import asyncio
import socket

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from sandboxes.agents.base import Endpoint, Job, Sampling
from sandboxes.deadline import Deadline
from sandboxes.problems.base import Observation


class EndpointServer:
    """Answers are taken in turn; each is a (status, headers, body) or a chat message. Requests are kept."""

    def __init__(self):
        self.answers = []
        self.requests = []
        self.headers = []
        self.url = ""

    def says(self, *calls, content="", finish="stop"):
        message = {"role": "assistant", "content": content}
        if calls:
            message["tool_calls"] = [
                {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
                for i, (name, arguments) in enumerate(calls)
            ]
        body = {"id": f"cc-{len(self.answers)}", "choices": [{"message": message, "finish_reason": finish}]}
        self.answers.append((200, {}, body))

    def fails(self, status, text, **headers):
        self.answers.append((status, headers, {"error": {"message": text}}))

    async def __call__(self, request):
        self.requests.append(await request.json())
        self.headers.append(request.headers)
        if not self.answers:
            await asyncio.sleep(60)
        status, headers, body = self.answers.pop(0)
        return JSONResponse(body, status_code=status, headers=headers)


@pytest.fixture
async def endpoint():
    app = EndpointServer()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    app.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    routes = [Route("/v1/chat/completions", app.__call__, methods=["POST"])]
    config = uvicorn.Config(Starlette(routes=routes), log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    async with asyncio.timeout(10):
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
    yield app
    server.should_exit = True
    await serving


class Echo:
    """An environment with one tool that repeats its argument, and `stop`, which ends it."""

    backend_name = "none"
    messages = ({"role": "system", "content": "s"}, {"role": "user", "content": "u"})
    tools = ({"type": "function", "function": {"name": "echo", "parameters": {"type": "object"}}},)

    async def call(self, name, arguments):
        if name == "stop":
            return Observation("stopped", done=True)
        return Observation(f"{name} {arguments}", is_error=name != "echo")

    async def grade(self):
        return []

    async def close(self):
        pass


@pytest.fixture
def job(endpoint):
    return Job(Echo(), Endpoint(endpoint.url, "key", "m"), Sampling(max_turns=4), (), Deadline(10, "the episode"))
