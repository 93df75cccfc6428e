"""From sampled ids to the message a client gets. What the parser cannot read becomes text, flagged, never an error."""

import json
from dataclasses import dataclass
from typing import Any

from lakehouse.records import Status
from sandboxes.gateway.calls.request import Request
from sandboxes.gateway.engines.engine import Engine
from sandboxes.gateway.engines.facts import Facts
from sandboxes.gateway.engines.tokens import Completion
from sandboxes.gateway.errors import EngineRefused, EngineTrouble
from sandboxes.gateway.sessions.recorded import Message


@dataclass(frozen=True)
class Reply:
    """A message and how it ended."""

    message: Message
    finish_reason: str  # stop, length, tool_calls
    status: Status  # ok, truncated, model_error
    logprobs: dict[str, Any] | None = None  # with token texts, for clients that asked


async def read(engine: Engine, request: Request, prompt: list[int], completion: Completion) -> Reply:
    """The reply that a completion says. EngineTrouble only where the engine is gone."""
    message, entries = await _parsed(engine, request, prompt, completion)
    return await judged(engine, request, completion, message, entries)


async def judged(
    engine: Engine, request: Request, completion: Completion, message: Message | None, entries: list[Message] | None
) -> Reply:
    """The reply of a parsed message, `None` where there is none: text in place of calls that cannot be read, flagged."""
    malformed = message is None or not well_formed(message)
    if message is None or malformed:
        message = {"role": "assistant", "content": await engine.detokenize(completion.shown)}
    elif message.get("tool_calls"):
        message = before_call(message, (await engine.facts()).before_call)
    if isinstance(completion.stop_reason, str):
        message = before_stop(message, completion.stop_reason)
    if request.conversation.tools and not message.get("tool_calls"):
        marker = (await engine.facts()).tool_marker
        malformed = malformed or bool(marker and marker in (message.get("content") or ""))
    if request.single_call and message.get("tool_calls"):  # not every engine's grammar holds it to one
        message = {**message, "tool_calls": message["tool_calls"][:1]}
    logprobs = None if entries is None else {"content": [trimmed(one, request.top_logprobs or 0) for one in entries]}
    if completion.finish_reason == "length":
        return Reply(message, "length", Status.TRUNCATED, logprobs)
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    return Reply(message, finish, Status.MODEL_ERROR if malformed else Status.OK, logprobs)


def before_stop(message: Message, stop: str) -> Message:
    """The message up to the stop string, which is in the last text it has: the ids keep it, the client does not see it."""
    last = "content" if message.get("content") or not message.get("reasoning") else "reasoning"
    return {**message, last: (message.get(last) or "").partition(stop)[0]}


def before_call(message: Message, break_: str) -> Message:
    """The message without what the template itself puts between text and calls: rendered again it would be there twice."""
    content = message.get("content") or ""
    return {**message, "content": content.removesuffix(break_) or None}


def sure(text: str, request: Request, facts: Facts) -> str:
    """The beginning of a streamed text that will be content whatever comes: not what may belong to a tool call."""
    if not request.conversation.tools or request.conversation.tool_choice == "none":
        return text
    if not text.strip():
        return ""  # parsers drop what is only space before a call
    if not facts.tool_marker:
        return text.partition("{")[0]  # calls are bare JSON, which the engine's parser may stream as text
    break_ = facts.before_call
    held = max((size for size in range(1, len(break_) + 1) if text.endswith(break_[:size])), default=0)
    return text[: len(text) - held]


def well_formed(message: Message) -> bool:
    """Whether every tool call has a name and a JSON object as its arguments."""
    for call in message.get("tool_calls") or []:
        try:
            arguments = json.loads(call["function"]["arguments"])
        except (ValueError, TypeError, RecursionError):
            return False
        if not isinstance(arguments, dict) or not call["function"]["name"]:
            return False
    return True


def trimmed(entry: Message, top: int) -> Message:
    """A token's log-prob with as many alternatives as the client asked for; the engine names the token itself at least."""
    return {**entry, "top_logprobs": entry["top_logprobs"][:top]}


def plain(message: Message) -> Message:
    """The engine's message with the fields that say something."""
    said: Message = {"role": "assistant", "content": message.get("content")}
    calls = message.get("tool_calls") or []
    if calls:
        said["tool_calls"] = [{"id": call["id"], "type": "function", "function": _function(call)} for call in calls]
    else:
        said["content"] = said["content"] or ""
    if message.get("reasoning"):
        said["reasoning"] = message["reasoning"]
    return said


def _function(call: Message) -> Message:
    return {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}


async def _parsed(
    engine: Engine, request: Request, prompt: list[int], completion: Completion
) -> tuple[Message | None, list[Message] | None]:
    """The engine's reading of the completion, or None where its parser chokes. Where there is nothing to parse it told the
    text with the ids, which saves a request."""
    ids = completion.shown
    wanted = request.top_logprobs is not None
    if not ids:  # only an end-of-turn token: derender refuses an empty list
        return {"role": "assistant", "content": ""}, [] if wanted else None
    if completion.text is not None:
        return {"role": "assistant", "content": completion.text}, None
    raw = completion.entries(end=len(ids)) if wanted else None
    try:
        choice = await engine.derender(ids, prompt, request.conversation, raw)
    except (EngineRefused, EngineTrouble):  # or the engine is gone: then the next request to it says so
        return None, None
    return plain(choice["message"]), choice["logprobs"]["content"] if wanted else None
