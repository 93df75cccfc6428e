"""The ways to sample one choice: through the engine's token routes, or through its chat completions.

Both give a `Reply` and fill a `Completion`; both hand parts on while the engine generates, where the client streams.
"""

from contextlib import aclosing
from typing import Any

from sandboxes.gateway.calls import reply
from sandboxes.gateway.calls.deltas import Deltas, Emit, Told
from sandboxes.gateway.calls.reply import Reply
from sandboxes.gateway.calls.request import Request
from sandboxes.gateway.calls.splice import Prompt
from sandboxes.gateway.engines.engine import Engine
from sandboxes.gateway.engines.tokens import Completion
from sandboxes.gateway.errors import EngineSwapped, EngineTrouble
from sandboxes.gateway.sessions.flight import Kind
from sandboxes.gateway.sessions.recorded import Message


async def sample(
    engine: Engine, request: Request, prompt: Prompt, choice: int, completion: Completion, emit: Emit
) -> Reply:
    """One choice. EngineTrouble or EngineRefused where the engine gives none; `completion` has what came until then."""
    told = Told(choice, emit)
    sampling = request.sampling_of(choice, prompt.rendered.sampling)
    if prompt.route == "chat":
        read = await _chat(engine, request, prompt, sampling, completion, told)
    else:
        read = await _generate(engine, request, prompt, sampling, completion, told)
    if not request.stream:
        return read
    return Reply(told.finish(read.message), read.finish_reason, read.status, read.logprobs)


async def _generate(
    engine: Engine, request: Request, prompt: Prompt, sampling: dict[str, Any], completion: Completion, told: Told
) -> Reply:
    """Ids in, ids out. The reply is read from all of the ids, streamed or not, so that both leave equal rows."""
    thinking, facts = prompt.rendered.thinking, await engine.facts()
    # With special tokens in its text an engine would also look for stop strings in them, and sample otherwise.
    text = facts.as_written and request.plain and not thinking and not sampling.get("stop")
    if request.stream:
        deltas = Deltas(engine, request, prompt.token_ids, told, facts)
        async with aclosing(engine.stream(prompt.token_ids, sampling, thinking, completion, text=text)) as steps:
            async for _ in steps:
                await deltas.step(completion)
    else:
        await engine.generate(prompt.token_ids, sampling, thinking, completion, text=text)
    _check_finish(completion)
    return await reply.read(engine, request, prompt.token_ids, completion)


async def _chat(
    engine: Engine, request: Request, prompt: Prompt, sampling: dict[str, Any], completion: Completion, told: Told
) -> Reply:
    """A chat completion with its ids. It tells no weight version, so the label must be the same before and after."""
    before = await engine.weight_label()
    if request.stream:
        message, prompt_ids = await _chat_streamed(engine, request, sampling, completion, told)
    else:
        answer = await engine.chat(request.conversation, sampling, completion)
        message, prompt_ids = reply.plain(answer["choices"][0]["message"]), answer.get("prompt_token_ids")
    completion.end_turn(next(iter((await engine.facts()).turn_end), None))
    _check_finish(completion)
    after = await engine.weight_label()
    if before is not None and before == after:
        completion.spans = [(before, 0, len(completion.token_ids))]
    if prompt_ids != prompt.token_ids:
        completion.fault = "the engine did not sample from the prompt ids it gave for this conversation"
    elif before != after:
        completion.fault = f"the weights changed from {before!r} to {after!r} while this call ran"
    entries = completion.entries(end=len(completion.shown)) if request.logprobs else None
    return await reply.judged(engine, request, completion, message, entries)


async def _chat_streamed(
    engine: Engine, request: Request, sampling: dict[str, Any], completion: Completion, told: Told
) -> tuple[Message, list[int] | None]:
    """The message that the deltas add up to, and the prompt's ids. Text goes on as it comes, tool calls wait."""
    prompt_ids: list[int] | None = None
    texts: dict[Kind, str] = {"reasoning": "", "content": ""}
    calls: dict[int, Message] = {}
    facts = await engine.facts()
    sent = 0  # log-probs
    async with aclosing(engine.chat_stream(request.conversation, sampling, completion)) as chunks:
        async for chunk in chunks:
            prompt_ids = chunk.get("prompt_token_ids") or prompt_ids
            for choice in chunk["choices"]:
                delta = choice["delta"]
                for kind in texts:
                    texts[kind] += delta.get(kind) or ""
                _collect(calls, delta.get("tool_calls") or [])
            if completion.finish_reason is None:
                new = completion.entries(sent) if request.logprobs else []
                sent += len(new)
                safe: dict[Kind, str] = {**texts, "content": reply.sure(texts["content"], request, facts)}
                told.more(safe, tuple(reply.trimmed(entry, request.top_logprobs or 0) for entry in new))
    message: Message = {
        "reasoning": texts["reasoning"],
        "content": texts["content"],
        "tool_calls": [calls[index] for index in sorted(calls)],
    }
    return reply.plain(message), prompt_ids


def _collect(calls: dict[int, Message], deltas: list[Message]) -> None:
    """Add a chunk's pieces of tool calls, told apart by index."""
    for delta in deltas:
        call = calls.setdefault(delta["index"], {"id": "", "function": {"name": "", "arguments": ""}})
        call["id"] = delta.get("id") or call["id"]
        for field in ("name", "arguments"):
            call["function"][field] += (delta.get("function") or {}).get(field) or ""


def _check_finish(completion: Completion) -> None:
    if completion.finish_reason == "abort":
        raise EngineSwapped("the engine ended this call unfinished, as for a swap of its weights: ask again")
    if completion.finish_reason not in ("stop", "length"):
        raise EngineTrouble(f"the engine ended the call with {completion.finish_reason!r}")
