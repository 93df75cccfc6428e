"""HTTP client of an engine: its token routes, and chat completions where it has none.

Errors become `EngineTrouble` or `EngineRefused`.
"""

import asyncio
import logging
import re
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Literal

from sandboxes.gateway.engines import raw
from sandboxes.gateway.engines.facts import LIKELY, USER, Ending, Facts, Rendered, Route, probe
from sandboxes.gateway.engines.guard import Guard
from sandboxes.gateway.engines.proofs import Proofs
from sandboxes.gateway.engines.tokens import Completion
from sandboxes.gateway.engines.upstream import Answer, Refusal, Upstream
from sandboxes.gateway.errors import EngineRefused, EngineTrouble
from sandboxes.gateway.sessions.recorded import Conversation, Message

log = logging.getLogger(__name__)
FACTS_LIFE_S = 60.0
ASIDE_S = 10.0  # for what is asked beside calls
FIRST_S = 45.0  # for the first token of a new engine, which may compile for it
LABEL_LIFE_S = 1.0  # the weights' label is asked again after this: a swap is seen within it, also where no answer tells
RENDER = "/v1/chat/completions/render"
GENERATE = "/inference/v1/generate"
DERENDER = "/v1/chat/completions/derender"
CHAT = "/v1/chat/completions"
TOKENIZE = "/tokenize"
SEED = 16  # ids of a prompt's end that are enough to seed detokenisation
NO_TOKEN = 2**31 - 1  # in no vocabulary
TOO_LONG = "context_length_exceeded"  # OpenAI's code
# What the chat route sends where the client sets nothing, so that no default of the engine's own shapes what is sampled.
NEUTRAL = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
ENDINGS: dict[Ending, dict[str, bool]] = {
    "prompt": {},
    "closed": {"add_generation_prompt": False},
    "open": {"add_generation_prompt": False, "continue_final_message": True},
}
THINKING = ("reasoning_ended", "reasoning_parser_kwargs")  # of render's answer, for generate
PLUMBING = (
    "output_kind",
    "skip_clone",
    "output_text_buffer_length",
    "skip_reading_prefix_cache",
    "skip_special_tokens",
)


class Engine:
    """One engine over one pooled HTTP client. All calls share the pool; the caller sets the overall deadline."""

    def __init__(
        self,
        url: str,
        model: str,
        *,
        deadline_s: float,
        allow: Sequence[str] = (),
        route: Literal["auto"] | Route = "auto",
    ) -> None:
        self.url = url.rstrip("/")
        self.model = model
        # Two pools: text requests are short and the engine does them one by one, so a few connections serve all;
        # generations hold theirs for long.
        self.guard = Guard(self.url, allow)
        self._text = Upstream(self.url, self.guard, deadline_s=deadline_s, connections=8)
        self._tokens = Upstream(self.url, self.guard, deadline_s=deadline_s, connections=1024)
        self._facts: tuple[float, Facts] | None = None
        self._asking = asyncio.Lock()
        self._route: Route | None = None if route == "auto" else route
        self._forced = route != "auto"
        self._label: tuple[float, str | None] = (-LABEL_LIFE_S, None)
        self._proofs = Proofs(self.weight_label)
        self._thinks = False  # it has a reasoning parser

    async def close(self) -> None:
        await self._text.close()
        await self._tokens.close()

    async def render(
        self, conversation: Conversation, sampling: Mapping[str, Any] | None = None, ending: Ending = "prompt"
    ) -> Rendered:
        """Token ids of a conversation, ending with the next turn's prompt, or its last turn closed or left open.

        EngineRefused, with both lengths, where they are more than the engine's context holds.
        """
        if conversation.raw is not None:
            return await self._render_raw(conversation.raw, sampling or {})
        said = {**self._chat(conversation), **ENDINGS[ending]}
        if await self.route() == "chat":
            return Rendered(await self._fitting(said), {**NEUTRAL, **(sampling or {})})
        answer = await self._rendered(RENDER, {**said, **(sampling or {})}, said)
        thinking = {name: answer[name] for name in THINKING if answer.get(name) is not None}
        self._thinks = "reasoning_parser_kwargs" in thinking
        return Rendered(answer["token_ids"], answer.get("sampling_params") or {}, thinking)

    async def generate(
        self,
        token_ids: Sequence[int],
        sampling: dict[str, Any],
        thinking: Message,
        into: Completion,
        *,
        text: bool = False,
    ) -> None:
        """Sample a whole completion, added to `into` at once; with its text where asked and where the engine tells it."""
        body = await self._generation(token_ids, sampling, thinking, text=text)
        answer = await self._post(GENERATE, body, self._tokens)
        into.add(answer["choices"][0])
        self._saw(into)

    async def stream(
        self,
        token_ids: Sequence[int],
        sampling: dict[str, Any],
        thinking: Message,
        into: Completion,
        *,
        text: bool = False,
    ) -> AsyncGenerator[list[int], None]:
        """Sample step by step; each step is added to `into` and its ids yielded. EngineTrouble where it breaks."""
        body = await self._generation(token_ids, sampling, thinking, text=text)
        async with aclosing(self._events(GENERATE, body)) as chunks:
            async for chunk in chunks:
                for choice in chunk["choices"]:
                    yield into.add(choice)
        self._saw(into)
        _check_ended(into)

    async def chat(self, conversation: Conversation, sampling: Mapping[str, Any], into: Completion) -> dict[str, Any]:
        """A chat completion with the ids it was made of, added to `into`. Returns the engine's answer."""
        answer: dict[str, Any] = await self._post(CHAT, await self._talk(conversation, sampling), self._tokens)
        into.add(answer["choices"][0])
        return answer

    async def chat_stream(
        self, conversation: Conversation, sampling: Mapping[str, Any], into: Completion
    ) -> AsyncGenerator[dict[str, Any], None]:
        """A chat completion step by step: each chunk's ids are added to `into`, then the chunk is yielded."""
        async with aclosing(self._events(CHAT, await self._talk(conversation, sampling))) as chunks:
            async for chunk in chunks:
                for choice in chunk["choices"]:
                    into.add(choice)
                yield chunk
        _check_ended(into)

    async def derender(
        self,
        token_ids: Sequence[int],
        prompt_ids: Sequence[int],
        conversation: Conversation,
        logprobs: list[Any] | None,
    ) -> dict[str, Any]:
        """The choice that these ids say: `message`, and `logprobs` with token texts where some are given."""
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "token_ids": list(token_ids)}
        if logprobs is not None:
            choice["logprobs"] = {"content": logprobs}
        response: dict[str, Any] = {"choices": [choice]}
        if conversation.raw is not None:
            seed = [list(prompt_ids[-SEED:])]
            told = {"model": self.model, "generate_responses": [response], "prompt_token_ids": seed}
            return raw.choice((await self._post(raw.DERENDER, told))["choices"][0])
        if self._thinks:  # the parser of a whole completion looks for the prompt here
            response["prompt_token_ids"] = list(prompt_ids)
        body = {**self._derendering(prompt_ids, conversation), "generate_response": response}
        answer = await self._post(DERENDER, body)
        found: dict[str, Any] = answer["choices"][0]
        return found

    async def derender_step(
        self,
        token_ids: Sequence[int],
        prompt_ids: Sequence[int],
        conversation: Conversation,
        state: dict[str, Any] | None,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the next ids add, less what the parser holds back (`content`, `reasoning`), and the next step's state."""
        chunk = {"choices": [{"index": 0, "token_ids": list(token_ids)}]}
        streamed = {"stream": True, "generate_chunk": chunk, "stream_state": state}
        if conversation.raw is not None:
            body = {"model": self.model, "prompt_token_ids": list(prompt_ids[-SEED:]), **streamed}
            answer = await self._post(raw.DERENDER, body)
            return {"content": answer["chunk"]["choices"][0]["text"]}, answer["stream_state"]
        body = {
            **self._derendering(prompt_ids, conversation),
            **streamed,
        }
        answer = await self._post(DERENDER, body)
        return answer["chunk"]["choices"][0]["delta"], answer["stream_state"]

    async def tokenize(self, text: str) -> list[int]:
        """The ids of a text, without what a tokenizer puts before a prompt."""
        body = {"model": self.model, "prompt": text, "add_special_tokens": False}
        tokens: list[int] = (await self._post(TOKENIZE, body))["tokens"]
        return tokens

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        """The text of ids, special tokens included."""
        answer = await self._post("/detokenize", {"model": self.model, "tokens": list(token_ids)})
        return str(answer["prompt"])

    async def healthy(self) -> bool:
        try:
            return (await self._text.get("/health", deadline_s=2.0)).status == 200
        except EngineTrouble:
            return False

    async def weight_label(self) -> str | None:
        """The label of the served weights; None where the engine does not tell (it then tells with each answer)."""
        answer = await self._text.get("/weight_info", deadline_s=ASIDE_S)
        return answer.told("weight_version") if answer.status == 200 else None

    async def label(self) -> str | None:
        """As `weight_label`, at most a second old; where the engine does not tell, the label its last answer showed."""
        asked, label = self._label
        if time.monotonic() - asked >= LABEL_LIFE_S:
            label = await self.weight_label() or label
            self._label = (time.monotonic(), label)
        return label

    async def settle(self, completion: Completion) -> None:
        """Give tokens that were sampled between a swap of weights and its proof their version; wait for the proof to end."""
        undecided = completion.undecided
        completion.decide(await self._proofs.decided(undecided) if undecided else None)

    def labelled(self, label: str) -> None:
        """Somebody else asked just now: the next call is sent under this label."""
        self._label = (time.monotonic(), label)

    async def route(self) -> Route:
        """How tokens are had: `generate`, or `chat` where the engine lacks one of the token routes or that was forced."""
        if self._route is None:
            missing = [path for path in (RENDER, GENERATE, DERENDER) if await self._misses(path)]
            if missing and await self._misses(TOKENIZE):
                raise EngineTrouble(
                    f"the engine at {self.url} has neither {', '.join(missing)} nor {TOKENIZE}, so no prompt's ids can be "
                    "known; vLLM has them when started with --enable-scale-out"
                )
            if missing:
                log.warning("%s lacks %s: its calls take the chat route, unspliced", self.url, ", ".join(missing))
            self._route = "chat" if missing else "generate"
        return self._route

    async def vocabulary(self) -> int | None:
        """How many token ids there are; None where the engine does not say it when it refuses one outside."""
        refused = {"logit_bias": {str(NO_TOKEN): 1.0}, "max_tokens": 1}
        try:
            if await self.route() == "chat":
                await self._post(CHAT, {"model": self.model, "messages": [USER], **refused})
            else:
                await self._post(GENERATE, {"model": self.model, "token_ids": [0], "sampling_params": refused})
        except EngineRefused as error:
            found = re.search(r"[Vv]ocab\w* size:? (\d+)", error.message)
            return int(found[1]) if found else None
        return None

    async def likely(self, prompt_ids: Sequence[int], temperature: float) -> list[float]:
        """The log-probs in nats of the LIKELY tokens that are likeliest next, best first. Where tokens cannot be given,
        next after `USER`.
        """
        sampling = {"max_tokens": 1, "temperature": temperature}
        told = LIKELY + 1  # the one that is drawn takes a place, however unlikely it is
        if await self.route() == "chat":
            body = {"model": self.model, "messages": [USER], **NEUTRAL, **sampling, "logprobs": True}
            path, body = CHAT, {**body, "top_logprobs": told}
        else:
            body = {
                "model": self.model,
                "token_ids": list(prompt_ids),
                "sampling_params": {**sampling, "logprobs": told},
            }
            path = GENERATE
        answer = await self._text.post(path, body, deadline_s=FIRST_S)
        if answer.status != 200:
            raise _failure(answer)
        try:
            [entry] = answer.json()["choices"][0]["logprobs"]["content"]
            found = sorted((float(one["logprob"]) for one in entry["top_logprobs"]), reverse=True)
        except (LookupError, TypeError, ValueError) as error:
            raise EngineTrouble(f"the engine at {self.url} does not tell its likeliest tokens: {error!r}") from error
        if len(found) < LIKELY:
            raise EngineTrouble(f"the engine at {self.url} tells {len(found)} of its {LIKELY} likeliest tokens")
        return found[:LIKELY]

    async def facts(self) -> Facts:
        """Version and template, asked again after a minute: the engine may have been restarted with others."""
        async with self._asking:
            if self._facts is None or time.monotonic() - self._facts[0] > FACTS_LIFE_S:
                if not self._forced:
                    self._route = None
                self._facts = (time.monotonic(), await probe(self, self._facts and self._facts[1]))
            return self._facts[1]

    def forget(self) -> None:
        """Another engine answers under this URL now: ask for its facts again."""
        self._facts = None

    async def version(self) -> str:
        answer = await self._text.get("/version", deadline_s=ASIDE_S)
        return answer.told("version") if answer.status == 200 else "unknown"

    async def _render_raw(self, prompt: str | Sequence[int], sampling: Mapping[str, Any]) -> Rendered:
        if await self.route() == "chat":
            raise EngineRefused(
                "this engine lacks the token routes, without which raw prompts are not served", param="prompt"
            )
        said = {"model": self.model, "prompt": prompt} if isinstance(prompt, str) else None
        answer = (await self._rendered(raw.RENDER, raw.rendering(self.model, prompt, sampling), said))[0]
        return Rendered(answer["token_ids"], answer.get("sampling_params") or {})

    async def _rendered(self, path: str, body: dict[str, Any], said: dict[str, Any] | None) -> Any:
        """The engine's rendering of a text, `said`, or of ids. Of a text too long it counts no further than one too many."""
        try:
            return await self._post(path, body)
        except EngineRefused as error:
            if error.param == "input_tokens" and said is not None:
                with suppress(EngineTrouble):
                    await self._fitting(said)
            raise

    async def _fitting(self, said: dict[str, Any]) -> list[int]:
        """The ids of `said`. EngineRefused where they are more than the context."""
        answer = await self._post(TOKENIZE, {name: value for name, value in said.items() if name != "tool_choice"})
        tokens: list[int] = answer["tokens"]
        limit = answer.get("max_model_len")
        if limit is not None and len(tokens) > limit:
            raise EngineRefused(
                f"this model's maximum context length is {limit} tokens and this prompt has {len(tokens)}: shorten it",
                param="input_tokens",
                code=TOO_LONG,
            )
        return tokens

    def _chat(self, conversation: Conversation) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "messages": list(conversation.messages)}
        if conversation.tools:
            body |= {"tools": list(conversation.tools), "tool_choice": conversation.tool_choice}
        if conversation.template_kwargs:
            body["chat_template_kwargs"] = conversation.template_kwargs
        return body

    async def _generation(
        self, token_ids: Sequence[int], sampling: dict[str, Any], thinking: Message, *, text: bool
    ) -> dict[str, Any]:
        wanted = {**sampling, "logprobs": sampling.get("logprobs") or 0}
        if text:
            wanted["skip_special_tokens"] = False  # as derender does
        elif not sampling.get("stop"):
            wanted["detokenize"] = False  # nobody reads it
        return {
            "model": self.model,
            "token_ids": list(token_ids),
            "sampling_params": wanted,
            **({"output_mode": "text"} if text else {}),
            **thinking,
            **await self._salt(),
        }

    async def _talk(self, conversation: Conversation, sampling: Mapping[str, Any]) -> dict[str, Any]:
        """A chat completion's body that asks for ids and log-probs."""
        top = sampling.get("top_logprobs") or 0
        told = {"logprobs": True, "top_logprobs": top, "return_token_ids": True}
        return {**self._chat(conversation), **sampling, **told, **await self._salt()}

    async def _salt(self) -> dict[str, str]:
        """The prefix cache is used per weight version: keys and values of earlier weights are never met again."""
        label = await self.label()
        return {"cache_salt": f"weights-{label}"} if label else {}

    def _saw(self, completion: Completion) -> None:
        """An answer tells the weights' label earlier than the engine is asked for it."""
        if completion.spans:
            self._label = (self._label[0], completion.spans[-1][0])

    def _derendering(self, prompt_ids: Sequence[int], conversation: Conversation) -> dict[str, Any]:
        # The parsers read the tools, not the turns; the end of the prompt is enough to seed detokenisation. A reasoning
        # parser looks in the whole prompt for where reasoning began and ended.
        short = Conversation(
            [{"role": "user", "content": ""}],
            conversation.tools,
            conversation.tool_choice,
            conversation.template_kwargs,
        )
        seed = list(prompt_ids if self._thinks else prompt_ids[-SEED:])
        return {"model": self.model, "chat_request": self._chat(short), "prompt_token_ids": seed}

    async def _events(self, path: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The server-sent events of a generation. EngineTrouble where one is an error or the stream breaks."""
        try:
            async with aclosing(self._tokens.lines(path, {**body, "stream": True})) as lines:
                async for line in lines:
                    if not line.startswith(b"data: ") or line.rstrip() == b"data: [DONE]":
                        continue
                    chunk = Answer(200, path, line[6:]).json()
                    if "error" in chunk:
                        raise EngineTrouble(f"the engine failed while generating: {_message(chunk)}")
                    yield chunk
        except Refusal as refusal:
            raise _failure(refusal.answer) from refusal

    async def _misses(self, path: str) -> bool:
        """Whether the engine has no such route: one that is there refuses an empty body otherwise."""
        return (await self._text.post(path, {}, deadline_s=ASIDE_S)).status in (404, 405)

    async def _post(self, path: str, body: dict[str, Any], pool: Upstream | None = None) -> Any:
        answer = await (pool or self._text).post(path, body)
        if answer.status != 200:
            raise _failure(answer)
        return answer.json()


def recorded_sampling(sampling: dict[str, Any]) -> dict[str, Any]:
    """The parameters worth keeping: what shapes the distribution, not how the engine returns it."""
    kept = {name: value for name, value in sampling.items() if name not in PLUMBING and value not in (None, [])}
    if isinstance(kept.get("structured_outputs"), dict):
        kept["structured_outputs"] = {
            name: value for name, value in kept["structured_outputs"].items() if value not in (None, False)
        }
    return kept


def _check_ended(completion: Completion) -> None:
    if completion.finish_reason is None:
        raise EngineTrouble("the engine ended its stream without a finish reason")


def _failure(answer: Answer) -> EngineRefused | EngineTrouble:
    """Class of a failed answer: only what the engine calls a bad request is the caller's doing."""
    try:
        body = answer.json()
    except ValueError:
        body = {}
    message = _message(body) or answer.text[:500]
    if answer.status in (400, 422):
        param = (body.get("error") or {}).get("param") if isinstance(body.get("error"), dict) else None
        # `input_text`: so long that its characters alone say it, and its tokens were not counted.
        too_long = param in ("input_tokens", "input_text") or "longer than the maximum model length" in message
        return EngineRefused(message, param=param, code=TOO_LONG if too_long else None)
    return EngineTrouble(f"the engine answered {answer.status} to {answer.path}: {message}")


def _message(body: dict[str, Any]) -> str:
    error = body.get("error")
    return str(error.get("message", "")) if isinstance(error, dict) else str(error or body.get("detail") or "")
