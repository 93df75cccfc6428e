"""A scripted engine: an ASGI application with vLLM's routes, whose replies are given. Tests need no mocks.

Replies are assistant messages, texts, or a function of the prompt's text. A list is indexed by how many assistant turns
the prompt holds, its last entry repeating, so that conversations may run side by side.
"""

import asyncio
import json
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from sandboxes.gateway.engines.facts import USER
from sandboxes.gateway.scripted import chat as scripted_chat
from sandboxes.gateway.scripted import text
from sandboxes.gateway.server.listen import serving

Reply = str | Mapping[str, Any]
Replies = Sequence[Reply] | Callable[[str], Reply]
CHARACTERS = 8  # that a token has at most, by what the engine says of prompts too long to be tokenised
Failure = Literal["500", "hang", "nan", "short", "foreign", "broken", "half", "parser", "no ids", "no prompt"]


class Scripted:
    """The engine. May be changed while it serves: `weight_version`, `failures` (each used once), `token_delay_s`."""

    def __init__(
        self,
        replies: Replies,
        *,
        model: str = "scripted",
        weight_version: str = "1",
        max_model_len: int = 16_384,
        merge: bool = False,
        strip: bool = False,
        think: bool = False,
        token_routes: bool = True,
        token_delay_s: float = 0.0,
        processed: bool = True,
        version: str = "scripted-1",
    ) -> None:
        self.replies = replies
        self.model = model
        self.weight_version = weight_version
        self.max_model_len = max_model_len
        self.merge = merge  # rendered text has other ids than the same text when sampled
        self.strip = strip  # the template trims earlier answers
        self.think = think  # it has a reasoning parser, and a template that drops earlier reasoning
        self.token_routes = token_routes  # without them only chat completions generate
        self.token_delay_s = token_delay_s
        self.processed = processed  # its log-probs are those of the temperature it is asked to sample at
        self.version = version
        self.started = time.time()  # seconds since the epoch
        self.failures: deque[Failure] = deque()
        self.generated = 0  # generations that ran to their end
        self.aborted = 0  # generations whose client went away
        self.asked: deque[dict[str, Any]] = deque(maxlen=256)  # bodies of the last generations

    def app(self) -> Starlette:
        """The ASGI application."""
        posts = {"/v1/chat/completions": self.chat, "/tokenize": self.tokenize, "/detokenize": self.detokenize}
        if self.token_routes:
            posts["/v1/chat/completions/render"] = self.render
            posts["/inference/v1/generate"] = self.generate
            posts["/v1/chat/completions/derender"] = self.derender
            posts["/v1/completions/render"] = self.render_raw
            posts["/v1/completions/derender"] = self.derender_raw
        fixed: dict[str, Callable[[], dict[str, Any]]] = {
            "/health": dict,
            "/version": lambda: {"version": self.version},
            "/weight_info": lambda: {"weight_version": self.weight_version},
            "/v1/models": lambda: {"object": "list", "data": [{"id": self.model, "object": "model"}]},
        }

        def answer(make: Callable[[], dict[str, Any]]) -> Callable[[Request], Any]:
            async def handler(_: Request) -> Response:
                return JSONResponse(make())

            return handler

        routes = [Route(path, handler, methods=["POST"]) for path, handler in posts.items()]
        routes += [Route(path, answer(make)) for path, make in fixed.items()]
        return Starlette(routes=[*routes, Route("/metrics", self.metrics)])

    def restart(self) -> None:
        """Be the same engine in a new process: its weights are those it starts with, under vLLM's own label."""
        self.started, self.weight_version = time.time(), "default"

    async def metrics(self, _: Request) -> Response:
        return PlainTextResponse(
            f"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {self.started}\n"
        )

    async def tokenize(self, request: Request) -> Response:
        body = await request.json()
        if "prompt" not in body and "messages" not in body:
            return _refusal(400, "Field required", "messages")
        ids = text.encode(body["prompt"], merge=self.merge) if "prompt" in body else self._rendered(body)
        return JSONResponse({"tokens": ids, "count": len(ids), "max_model_len": self.max_model_len})

    async def render(self, request: Request) -> Response:
        body = await request.json()
        refused = self._refused(body)
        if refused:
            return refused
        ids = self._rendered(body)
        kwargs = {"reasoning_parser_kwargs": {"chat_template_kwargs": body.get("chat_template_kwargs") or {}}}
        thinking = {"reasoning_ended": False, **kwargs} if self.think else {}
        return JSONResponse({"token_ids": ids, "sampling_params": self._sampling(body, ids), **thinking})

    async def render_raw(self, request: Request) -> Response:
        body = await request.json()
        prompt = body["prompt"]
        ids = text.encode(prompt, merge=self.merge) if isinstance(prompt, str) else prompt
        refused = self._refused_prompt(body, ids)
        if refused:
            return refused
        sampling = {**self._sampling(body, ids), "logprobs": body.get("logprobs") or 0}
        return JSONResponse([{"token_ids": ids, "sampling_params": sampling}])

    async def derender_raw(self, request: Request) -> Response:
        body = await request.json()
        if body.get("stream"):
            return JSONResponse(scripted_chat.raw_step(body))
        choice = body["generate_responses"][0]["choices"][0]
        if not choice["token_ids"]:
            return _refusal(400, "choice 0 has empty or null token_ids", None)
        return JSONResponse({"choices": [scripted_chat.raw_choice(choice)]})

    def _refused(self, body: dict[str, Any]) -> Response | None:
        """What vLLM says to a chat request that it does not take."""
        if "messages" not in body:
            return _refusal(400, "Field required", "messages")
        return self._refused_prompt(body, self._rendered(body)) or _foreign(body)

    def _refused_prompt(self, body: dict[str, Any], ids: list[int]) -> Response | None:
        if body["model"] != self.model:
            return _refusal(404, f"The model `{body['model']}` does not exist.", "model")
        if not 0 <= body.get("temperature", 1.0) <= 2:
            return _refusal(400, f"temperature must be in [0, 2], got {body['temperature']}", "temperature")
        limits = [body[name] for name in ("max_tokens", "max_completion_tokens") if body.get(name) is not None]
        if min(limits, default=1) < 1:
            return _refusal(400, f"max_tokens must be at least 1, got {min(limits)}.", "max_tokens")
        if not all(body.get("stop") or []):
            return _refusal(400, "stop cannot contain an empty string.", None)
        return self._too_long(ids) if len(ids) >= self.max_model_len else None

    def _too_long(self, ids: list[int]) -> Response:
        """vLLM's words: of text that cannot fit it counts characters, of any other as many tokens as are one too many."""
        characters, most = len(text.decode(ids)), self.max_model_len * CHARACTERS
        said = f"This model's maximum context length is {self.max_model_len} tokens. However, your prompt contains "
        if characters > most:
            return _refusal(400, f"{said}{characters} characters (more than {most} characters).", "input_text")
        return _refusal(400, f"{said}at least {self.max_model_len + 1} input tokens.", "input_tokens")

    def _rendered(self, body: dict[str, Any]) -> list[int]:
        closed = body.get("add_generation_prompt") is False
        ending = "open" if body.get("continue_final_message") else "closed" if closed else "prompt"
        tools = body.get("tools") or []
        said = text.render(body["messages"], tools, ending=ending, strip=self.strip, think=self.think)
        return text.encode(said, merge=self.merge)

    def _sampling(self, body: dict[str, Any], prompt: list[int]) -> dict[str, Any]:
        """Sampling parameters as the engine resolves them."""
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or self.max_model_len - len(prompt)
        names = ("temperature", "top_p", "seed", "stop")
        sampling = {"temperature": 1.0, "top_p": 1.0, **{name: body[name] for name in names if name in body}}
        grammar = _grammar(body)
        if grammar:
            sampling["structured_outputs"] = grammar
        return {**sampling, "max_tokens": limit, "logprobs": body.get("top_logprobs") or 0}

    async def generate(self, request: Request) -> Response:
        body = await request.json()
        if "token_ids" not in body:
            return _refusal(400, "Field required", "token_ids")
        refused = _foreign(body["sampling_params"])
        if refused:
            return refused
        return await self._generated(request, body, body["token_ids"], body["sampling_params"])

    async def chat(self, request: Request) -> Response:
        body = await request.json()
        refused = self._refused(body)
        if refused:
            return refused
        prompt = self._rendered(body)
        said = scripted_chat.Said(body, prompt, tools=_takes_tools(body), think=self.think)
        return await self._generated(request, body, prompt, self._sampling(body, prompt), said)

    async def _generated(
        self,
        request: Request,
        body: dict[str, Any],
        prompt: list[int],
        sampling: dict[str, Any],
        said: scripted_chat.Said | None = None,
    ) -> Response:
        """A generation, told in ids or, by `said`, as a chat completion. The gateway's own question counts as none."""
        if prompt == self._rendered({"messages": [USER]}):
            drawn_at = sampling["temperature"]
            likely = scripted_chat.likely(drawn_at, told=drawn_at if self.processed else 1.0)
            return JSONResponse({"choices": [likely]})
        self.asked.append(body)
        failure = self._failure("500", "hang", "nan", "short", "foreign", "broken", "half", "no ids", "no prompt")
        if failure == "500":
            return _refusal(500, "EngineDeadError: scripted", None)
        if failure == "hang":
            await _gone(request)
        ids, finish, stop = self._sample(prompt, sampling)
        choice = self._choice(ids, finish, stop, failure=failure)
        if body.get("output_mode") == "text":
            choice["text"] = scripted_chat.shown(choice)
        if body.get("stream"):
            return StreamingResponse(self._stream(choice, failure, said), media_type="text/event-stream")
        gone = asyncio.create_task(_gone(request))
        await asyncio.wait([gone], timeout=self.token_delay_s * len(ids))
        if gone.done():
            self.aborted += 1
        gone.cancel()
        self.generated += 1
        answer = said.whole(choice) if said else {"request_id": "scripted", "choices": [choice]}
        whole = json.dumps(
            _lacking(answer, failure)
        )  # writes NaN as the engine's own encoder would not; the gateway must cope with both
        return Response(whole[: len(whole) // 2] if failure == "half" else whole, media_type="application/json")

    async def derender(self, request: Request) -> Response:
        body = await request.json()
        if "chat_request" not in body:
            return _refusal(400, "Field required", "generate_response")
        tools = _takes_tools(body["chat_request"])
        if self._failure("parser"):
            return _refusal(500, "the parser failed: scripted", None)
        if body.get("stream"):
            return JSONResponse(_derender_step(body, tools=tools, think=self.think))
        choice = body["generate_response"]["choices"][0]
        if not choice["token_ids"]:
            return _refusal(400, "choice 0 has empty or null token_ids", None)
        message = text.parse(text.decode(choice["token_ids"]).rstrip("\ufffd"), tools=tools, think=self.think)
        entries = (choice.get("logprobs") or {}).get("content")
        named = entries and scripted_chat.named(entries)
        return JSONResponse({"choices": [{"index": 0, "message": message, "logprobs": named and {"content": named}}]})

    async def detokenize(self, request: Request) -> Response:
        return JSONResponse({"prompt": text.decode((await request.json())["tokens"])})

    def _failure(self, *kinds: Failure) -> Failure | None:
        return self.failures.popleft() if self.failures and self.failures[0] in kinds else None

    def _sample(self, prompt_ids: list[int], sampling: dict[str, Any]) -> tuple[list[int], str, str | None]:
        """Ids of the scripted reply, its finish reason and the stop string that ended it."""
        prompt = text.decode(prompt_ids)
        if callable(self.replies):
            reply = self.replies(prompt)
        else:
            reply = self.replies[min(prompt.count("<|im_start|>assistant") - 1, len(self.replies) - 1)]
        if not isinstance(reply, str):
            calls = "".join(text.called(call["function"]) for call in reply.get("tool_calls") or [])
            thought = f"<think>{reply['reasoning']}</think>" if reply.get("reasoning") else ""
            reply = thought + (reply.get("content") or "") + calls
        limit = min(sampling["max_tokens"], self.max_model_len - len(prompt_ids))
        for stop in sampling.get("stop") or []:
            if stop in reply:
                return text.encode(reply.partition(stop)[0] + stop, merge=False)[:limit], "stop", stop
        ids = [*text.encode(reply, merge=False), text.END]
        return (ids, "stop", None) if len(ids) <= limit else (ids[:limit], "length", None)

    def _choice(
        self, ids: list[int], finish: str, stop: str | None, *, failure: Failure | None = None
    ) -> dict[str, Any]:
        if failure == "foreign":
            ids = [text.VOCABULARY + 7, *ids[1:]]
        values = [math.nan if failure == "nan" and at == 0 else -0.5 - (one % 16) / 64 for at, one in enumerate(ids)]
        content = [
            {"token_id": one, "logprob": value, "rank": 1, "top_logprobs": [_alternative(one, value)]}
            for one, value in zip(ids, values, strict=True)
        ]
        if failure == "short":
            content = content[:-1]
        spans = [{"version": self.weight_version, "start": 0, "end": len(ids)}]
        return {
            "index": 0,
            "token_ids": ids,
            "finish_reason": finish,
            "stop_reason": stop,
            "weight_versions": spans,
            "logprobs": {"content": content},
        }

    async def _stream(
        self, choice: dict[str, Any], failure: Failure | None, said: scripted_chat.Said | None
    ) -> AsyncIterator[str]:
        ids, content = choice["token_ids"], choice["logprobs"]["content"]
        done, told = False, 0
        try:
            for at, one in enumerate(ids):
                await asyncio.sleep(self.token_delay_s)
                step: dict[str, Any] = {
                    "index": 0,
                    "token_ids": [one],
                    "logprobs": {"content": content[at : at + 1]},
                    "finish_reason": None,
                }
                if failure == "broken" and at == len(ids) // 2:
                    yield f"data: {json.dumps({'error': {'message': 'scripted break', 'code': 500}})}\n\n"
                    return
                if failure == "half" and at == len(ids) // 2:
                    return
                if at == len(ids) - 1:
                    step |= {name: choice[name] for name in ("finish_reason", "stop_reason", "weight_versions")}
                if "text" in choice:
                    said_now = text.decode(ids[: at + 1]).rstrip("\ufffd")
                    known = len(choice["text"]) if step["finish_reason"] else min(len(said_now), len(choice["text"]))
                    step["text"], told = choice["text"][told:known], known
                chunk = said.chunk(step) if said else {"choices": [step]}
                yield f"data: {json.dumps(_lacking(chunk, failure))}\n\n"
            done = True
            self.generated += 1
            yield "data: [DONE]\n\n"
        finally:
            self.aborted += not done

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Serve in the running event loop; gives the URL."""
        async with serving(self.app()) as url:
            yield url


@asynccontextmanager
async def serve(replies: Replies, *, model: str = "scripted") -> AsyncIterator[str]:
    """A scripted engine with these replies; gives its URL."""
    async with Scripted(replies, model=model).serve() as url:
        yield url


def _lacking(answer: dict[str, Any], failure: Failure | None) -> dict[str, Any]:
    """The answer of an engine that does not tell the ids it sampled, or those it sampled from, though it was asked."""
    if failure == "no prompt":
        answer = {**answer, "prompt_token_ids": None}
    if failure == "no ids":
        answer = {**answer, "choices": [{**choice, "token_ids": None} for choice in answer["choices"]]}
    return answer


def _derender_step(body: dict[str, Any], *, tools: bool, think: bool) -> dict[str, Any]:
    """Reasoning and content that can be shown, and how much of each has been."""
    state = body.get("stream_state") or {"output_token_ids": [], "reasoning": 0, "content": 0}
    ids = state["output_token_ids"] + [
        one for choice in body["generate_chunk"]["choices"] for one in choice["token_ids"]
    ]
    said = scripted_chat.showable(ids, tools=tools, think=think)
    delta = {kind: text[state[kind] :] or None for kind, text in said.items()}
    return {
        "chunk": {"choices": [{"index": 0, "delta": delta}]},
        "stream_state": {"output_token_ids": ids, **{kind: len(text) for kind, text in said.items()}},
    }


def _takes_tools(body: dict[str, Any]) -> bool:
    return bool(body.get("tools")) and body.get("tool_choice") != "none"


def _grammar(body: dict[str, Any]) -> dict[str, Any] | None:
    """The constraint that vLLM makes of a request; replies are given, so that nothing follows it here."""
    choice, wanted = body.get("tool_choice"), body.get("response_format")
    if _takes_tools(body) and (choice not in ("auto", None) or body.get("parallel_tool_calls") is False):
        return {"json": None, "structural_tag": json.dumps({"choice": choice, "tools": len(body["tools"])})}
    if wanted and wanted["type"] == "json_object":
        return {"json": None, "json_object": True}
    return {"json": wanted["json_schema"]["schema"]} if wanted and wanted["type"] == "json_schema" else None


def _alternative(token_id: int, logprob: float) -> dict[str, Any]:
    return {"token_id": token_id, "logprob": logprob, "rank": 1}


def _foreign(sampling: dict[str, Any]) -> Response | None:
    """vLLM's refusal of a token id that it does not have; nothing else it says tells its vocabulary."""
    outside = [one for one in sampling.get("logit_bias") or {} if int(one) >= text.VOCABULARY]
    if not outside:
        return None
    said = f"token_id(s) {outside} in logit_bias contain out-of-vocab token ids. Vocabulary size: {text.VOCABULARY}"
    return _refusal(400, said, "logit_bias")


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _refusal(status: int, message: str, param: str | None) -> Response:
    return JSONResponse(
        {"error": {"message": message, "type": "error", "param": param, "code": status}}, status_code=status
    )
