"""Per chat template: a later turn begins with the ids of the turns before it, or forks for a reason that is stated here.

Text comes from vLLM's own code: a render-only server per template and tokenizer renders, detokenises and parses. Only the
sampling is ours: a policy whose words are given and which says them byte by byte, so that its ids are never what the
tokenizer would give, and no character is one token.
"""

import asyncio
import json
import signal
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from sandboxes.gateway.app import Gateway
from sandboxes.gateway.client import GatewayClient
from sandboxes.gateway.engines.facts import LIKELY
from sandboxes.gateway.scripted.chat import likely
from sandboxes.gateway.server.listen import serving
from sandboxes.gateway.settings import Settings
from tasks.serving.models import TINY
from tasks.stack import Settings as StackSettings

pytestmark = pytest.mark.engine

HERE = Path(__file__).parent
DEADLINE_S = 240.0
ARGUMENTS = [{"query": "größe ☕"}, {"query": "日本"}]
CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


@dataclass(frozen=True)
class Family:
    """A template with its special tokens, the engine's parsers for it, and how its policy writes tool calls."""

    name: str
    special: Sequence[str] = ()
    end: str = "<|im_end|>"
    call: str = '<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
    between: str = "\n"  # calls, and text and a call
    parser: str = "hermes"
    reasoning: str | None = None
    bos: str | None = None
    tools: bool = True
    parallel: bool = True

    def calls(self, count: int) -> str:
        """What the policy says to call `search` that many times."""
        dumped = [json.dumps(one, ensure_ascii=False) for one in ARGUMENTS[:count]]
        return self.between.join(self.call.format(name="search", arguments=one) for one in dumped)


LLAMA = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|python_tag|>"]
FAMILIES = [
    Family("tiny", call='<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>', between=""),
    Family("smollm2", CHATML, tools=False),
    Family("qwen25", [*CHATML, "<tool_call>", "</tool_call>"]),
    Family("qwen3", [*CHATML, "<tool_call>", "</tool_call>", "<think>", "</think>"], reasoning="qwen3"),
    Family(
        "llama31", LLAMA, end="<|eot_id|>", call='{{"name": "{name}", "parameters": {arguments}}}',
        parser="llama3_json", bos="<|begin_of_text|>", parallel=False,
    ),
    Family(
        "hermes", [*CHATML, "<s>", "<tool_call>", "</tool_call>"], bos="<s>",
        call='<tool_call>\n{{"arguments": {arguments}, "name": "{name}"}}\n</tool_call>',
    ),
]  # fmt: skip


def build(family: Family, folder: Path) -> Path:
    """A model folder without weights: a byte-level BPE tokenizer with the family's special tokens, and its template."""
    if family.name == "tiny":
        return TINY
    folder.mkdir()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=len(alphabet) + 256, initial_alphabet=alphabet, show_progress=False)
    words = (HERE / "templates" / "qwen25.jinja").read_text() + json.dumps(ARGUMENTS, ensure_ascii=False) * 4
    tokenizer.train_from_iterator(words.splitlines(), trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in family.special])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"eos_token": family.end, **({"bos_token": family.bos} if family.bos else {})}
    tokens = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 4096, **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens))
    (folder / "chat_template.jinja").write_text((HERE / "templates" / f"{family.name}.jinja").read_text())
    shape = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1}
    vocabulary = {"vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": 4096, "torch_dtype": "float32"}
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **shape, **vocabulary}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def rendering(tmp_path_factory, free_ports):
    """Per family its render-only server's URL and its tokenizer."""
    python = StackSettings().engine_python
    if not python.exists():
        pytest.skip(f"no engine environment at {python}: run `make install-engine`")
    root = tmp_path_factory.mktemp("templates")
    ports = dict(zip((family.name for family in FAMILIES), free_ports(len(FAMILIES)), strict=True))
    folders = {family.name: build(family, root / family.name) for family in FAMILIES}
    servers = [arguments(family, folders[family.name], ports[family.name]) for family in FAMILIES]
    environment = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_HOST_IP": "127.0.0.1",
        "PATH": "/usr/bin:/bin",
    }
    log = root / "servers.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(python), str(HERE / "render_servers.py"), json.dumps(servers)],
            stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=root,
        )  # fmt: skip
    try:
        for name, port in ports.items():
            _await(f"http://127.0.0.1:{port}/health", process, f"the render server of {name}", log)
        yield {
            name: (f"http://127.0.0.1:{port}", Tokenizer.from_file(str(folders[name] / "tokenizer.json")))
            for name, port in ports.items()
        }
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


def arguments(family: Family, folder: Path, port: int) -> list[str]:
    given = ["--model", str(folder), "--served-model-name", family.name, "--host", "127.0.0.1", "--port", str(port)]
    given += ["--enable-auto-tool-choice", "--tool-call-parser", family.parser, "--disable-uvicorn-access-log"]
    return given + (["--reasoning-parser", family.reasoning] if family.reasoning else [])


def _await(url: str, process: "subprocess.Popen[bytes]", what: str, log: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            if httpx.get(url, timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"{what} did not come up:\n{log.read_text()[-3000:]}")
        time.sleep(0.1)


class Voice:
    """An engine in front of a render server: it samples what it is told to say, byte by byte."""

    def __init__(self, family: Family, url: str, tokenizer: Tokenizer) -> None:
        self.family = family
        self.lines: deque[str] = deque()
        self._tokenizer = tokenizer
        self._text = httpx.AsyncClient(base_url=url, timeout=60)

    def app(self) -> Starlette:
        """The ASGI application."""
        return Starlette(
            routes=[
                Route("/weight_info", self.weights),
                Route("/inference/v1/generate", self.generate, methods=["POST"]),
                Route("/{path:path}", self.forward, methods=["GET", "POST"]),
            ]
        )

    async def forward(self, request: Request) -> Response:
        body = await request.body()
        path, kind = request.url.path, {"content-type": "application/json"}
        answer = await self._text.request(request.method, path, content=body, headers=kind)
        return Response(answer.content, answer.status_code, media_type=answer.headers.get("content-type"))

    async def weights(self, _: Request) -> Response:
        return JSONResponse({"weight_version": "1"})

    async def generate(self, request: Request) -> Response:
        body = await request.json()
        if "token_ids" not in body or "logit_bias" in body["sampling_params"]:
            return JSONResponse({"error": {"message": "refused"}}, status_code=400)
        if body["sampling_params"].get("logprobs") == LIKELY + 1:  # the gateway's own question
            drawn_at = body["sampling_params"]["temperature"]
            return JSONResponse({"choices": [likely(drawn_at, told=drawn_at)]})
        said = [*self.bytewise(self.lines.popleft()), self._tokenizer.token_to_id(self.family.end)]
        limit = body["sampling_params"]["max_tokens"]
        ids, finish = said[:limit], "stop" if len(said) <= limit else "length"
        if body.get("stream"):
            return StreamingResponse(self._stream(ids, finish), media_type="text/event-stream")
        return JSONResponse({"choices": [_choice(ids, finish)]})

    async def _stream(self, ids: list[int], finish: str):
        for at, one in enumerate(ids):
            await asyncio.sleep(0.004)
            last = at == len(ids) - 1
            step = _choice([one], finish if last else None)
            step["weight_versions"] = [{"version": "1", "start": 0, "end": len(ids)}] if last else None
            yield f"data: {json.dumps({'choices': [step]})}\n\n"

    def bytewise(self, text: str) -> list[int]:
        """Ids of a text: special tokens whole, anything else a token per byte."""
        ids: list[int] = []
        while text:
            special = next((one for one in self.family.special if text.startswith(one)), None)
            piece = special or text[0]
            text = text[len(piece) :]
            shown = [special] if special else list(pre_tokenizers.ByteLevel(False, False).pre_tokenize_str(piece)[0][0])
            ids += [self._tokenizer.token_to_id(one) for one in shown]
        return ids


def _choice(ids: list[int], finish: str | None) -> dict[str, Any]:
    content = [{"token_id": one, "logprob": -0.5, "rank": 1, "top_logprobs": []} for one in ids]
    spans = [{"version": "1", "start": 0, "end": len(ids)}]
    return {
        "index": 0, "token_ids": ids, "finish_reason": finish, "stop_reason": None,
        "logprobs": {"content": content}, "weight_versions": spans,
    }  # fmt: skip


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Looks it up",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
        },
    }
]
SYSTEM = {"role": "system", "content": "You answer in few words."}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


@dataclass(frozen=True)
class Case:
    """A conversation: what the policy says in each turn, and what the client adds after it ("" for tool results)."""

    said: Sequence[str]
    added: Sequence[str]
    system: bool = True
    tools: bool = False
    max_tokens: Sequence[int | None] = (None, None, None)
    thinking: bool = False


def cases(family: Family) -> dict[str, Case]:
    """All conversations that this family can have."""
    found = {
        "turns": Case(["Paris.", "Lyon.", "Nice."], ["And then?", "And then?"]),
        "no system": Case(["Paris.", "Lyon.", "Nice."], ["And then?", "And then?"], system=False),
        "unicode": Case(["größe ☕ 日本語", "👩‍🔬 und Ω", "é"], ["naïve?", "日本?"]),
        "line breaks": Case(["a\n\nb\n- c", "d", "e"], ["one\n\ntwo", "three"]),
        "cut off": Case(["one two three four", "five", "six"], ["go on", "go on"], max_tokens=(7, None, None)),
        "cut in a character": Case(["☕☕☕", "five", "six"], ["go on", "go on"], max_tokens=(4, None, None)),
        "spaces at the ends": Case(["  Paris.  ", "Lyon.", "Nice."], ["And then?", "And then?"]),
    }
    if family.tools:
        found["a call"] = Case([family.calls(1), "Found.", "Yes."], ["", "Sure?"], tools=True)
        found["calls in a row"] = Case([family.calls(1), family.calls(1), "Found."], ["", ""], tools=True)
        text = f"I look ☕.{family.between}{family.calls(1)}"
        found["text before a call"] = Case([text, "Found.", "Yes."], ["", "Sure?"], tools=True)
        spaced = family.calls(1).replace('": ', '":')
        found["a call in other spacing"] = Case([spaced, "Found.", "Yes."], ["", "Sure?"], tools=True)
        broken = family.calls(1).replace("}", "", 1)
        found["a malformed call"] = Case([broken, "Sorry.", "Yes."], ["What?", "Sure?"], tools=True)
    if family.tools and family.parallel:
        found["parallel calls"] = Case([family.calls(2), "Found.", "Yes."], ["", "Sure?"], tools=True)
    if family.reasoning:
        thought = "<think>\nhm ☕\n</think>\n\n"
        found["thinking"] = Case(
            [thought + "Paris.", thought + "Lyon.", "Nice."], ["And then?", "And then?"], thinking=True
        )
        calls = [thought + family.calls(1), thought + family.calls(1), thought + "Found."]
        found["thinking in a tool loop"] = Case(calls, ["", ""], tools=True, thinking=True)
    return found


STRIPS = "the template shows no reasoning of turns before the last question"
EMPTY = "the prompt without thinking has an empty thought, which the template does not show once the turn is over"
TRIMS = "the template trims what was said"
DROPS = "the template leaves out what was said before a call"
QWEN3 = next(family for family in FAMILIES if family.name == "qwen3")
# (family, case) -> the stated reason of each later turn that does not go on from the recorded ids. All others do.
FORKS: dict[tuple[str, str], tuple[str | None, str | None]] = {
    ("llama31", "spaces at the ends"): (TRIMS, None),
    ("hermes", "text before a call"): (DROPS, None),
    ("qwen3", "thinking"): (STRIPS, STRIPS),
    **{("qwen3", name): (EMPTY, EMPTY) for name, case in cases(QWEN3).items() if not case.thinking},
}


# vLLM's parser of bare JSON calls drops the text before one where it reads an answer whole, and streams it otherwise.
READ_APART = {("llama31", "text before a call")}


@asynccontextmanager
async def conversing(family: Family, rendering, home: Path):
    """A gateway before the family's engine."""
    voice = Voice(family, *rendering[family.name])
    async with serving(voice.app()) as engine_url:
        gateway = Gateway(Settings(engine=engine_url, home=home, model=family.name, call_deadline_s=60))
        async with (
            serving(gateway.app()) as url,
            GatewayClient(url, gateway.operator_key) as client,
            AsyncOpenAI(base_url=client.openai_base_url, api_key="none", max_retries=0, timeout=60) as sdk,
        ):
            yield voice, client, sdk


async def converse(case: Case, voice: Voice, client: GatewayClient, sdk: AsyncOpenAI, *, stream: bool):
    """The rows of one conversation and what was said in it, message by message."""
    session = await client.start_session("t")
    mine = sdk.with_options(api_key=session.api_key)
    messages = [*([SYSTEM] if case.system else []), user("Where is it?")]
    for turn, line in enumerate(case.said):
        voice.lines.append(line)
        wanted: dict[str, Any] = {"model": voice.family.name, "messages": messages}
        if case.tools:
            wanted["tools"] = TOOLS
        if case.max_tokens[turn]:
            wanted["max_tokens"] = case.max_tokens[turn]
        if voice.family.reasoning and not case.thinking:
            wanted["extra_body"] = {"chat_template_kwargs": {"enable_thinking": False}}
        answer = await mine.chat.completions.create(**wanted, stream=stream)
        messages.append(await _joined(answer) if stream else answer.choices[0].message.model_dump(exclude_none=True))
        if turn < len(case.added):
            messages += _added(case.added[turn], messages[-1])
    rows = await client.calls(session.session_id, episode_id="e", attempt_id="a")
    return rows, [_without_ids(message) for message in messages]


def _without_ids(message: dict[str, Any]) -> dict[str, Any]:
    """A message without what is random, and without the ways to say that there is no text."""
    calls = [call["function"] for call in message.get("tool_calls") or []]
    kept = {name: value for name, value in message.items() if name not in ("tool_calls", "tool_call_id")}
    return {**kept, "content": message.get("content") or "", "calls": calls}


async def _joined(stream) -> dict[str, Any]:
    """The message that the deltas add up to, as an agent that streams would echo it."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: dict[int, dict[str, Any]] = {}
    async for chunk in stream:
        delta = chunk.choices[0].delta
        message["content"] += delta.content or ""
        thought = getattr(delta, "reasoning_content", None)
        if thought:
            message["reasoning_content"] = message.get("reasoning_content", "") + thought
        for call in delta.tool_calls or []:
            known = calls.setdefault(
                call.index, {"id": call.id, "type": "function", "function": {"name": "", "arguments": ""}}
            )
            known["function"]["name"] += call.function.name or ""
            known["function"]["arguments"] += call.function.arguments or ""
    return {**message, "tool_calls": list(calls.values())} if calls else message


def _added(text: str, answer: dict[str, Any]) -> list[dict[str, Any]]:
    if text:
        return [user(text)]
    return [{"role": "tool", "content": "größe 5", "tool_call_id": call["id"]} for call in answer["tool_calls"]]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
async def test_later_turns_begin_with_recorded_ids_or_fork_for_a_stated_reason(rendering, tmp_path, family):
    async with conversing(family, rendering, tmp_path) as (voice, client, sdk):
        found, stated = {}, {}
        for name, case in cases(family).items():
            whole, said = await converse(case, voice, client, sdk, stream=False)
            streamed, told = await converse(case, voice, client, sdk, stream=True)
            assert said == told or (family.name, name) in READ_APART, name
            assert "\ufffd" not in json.dumps(said, ensure_ascii=False), name
            for rows in (whole, streamed):
                assert {row.token_status for row in rows} == {"exact"}
                assert [len(row.completion_token_ids) for row in rows] == [
                    len(row.completion_token_ids) for row in whole
                ]
                found[name, rows is whole] = tuple(_continues(*pair) for pair in pairwise(rows))
                reasons = FORKS.get((family.name, name), (None, None))
                stated[name, rows is whole] = tuple(reason is None for reason in reasons)
        assert found == stated


async def test_a_malformed_call_is_text_and_flagged_where_the_template_marks_calls(rendering, tmp_path):
    for family in FAMILIES:
        if "a malformed call" in cases(family):
            async with conversing(family, rendering, tmp_path / family.name) as (voice, client, sdk):
                rows, said = await converse(cases(family)["a malformed call"], voice, client, sdk, stream=False)
                marked = "<tool_call>" in family.call
                assert rows[0].status == ("model_error" if marked else "ok"), family.name
                assert any("search" in (message["content"] or "") for message in said), family.name


def _continues(earlier, later) -> bool:
    """Whether `later` goes on from `earlier`'s ids. Where it does not, its row must say so."""
    known = earlier.prompt_token_ids + earlier.completion_token_ids
    continues = later.prompt_token_ids[: len(known)] == known
    assert later.fork_reason == (None if continues else "retokenised")
    return continues
