"""From sampled ids to the message a client gets. What the parser cannot read becomes text, flagged, never an error."""

import json
from dataclasses import dataclass
from typing import Any

from lakehouse.records import Status
from sandboxes.gateway.engine import Completion, Engine
from sandboxes.gateway.errors import EngineRefused, EngineTrouble
from sandboxes.gateway.facts import Conversation
from sandboxes.gateway.recorded import Message


@dataclass(frozen=True)
class Reply:
    """A message and how it ended."""

    message: Message
    finish_reason: str  # stop, length, tool_calls
    status: Status  # ok, truncated, model_error
    logprobs: dict[str, Any] | None = None  # with token texts, for clients that asked


async def read(
    engine: Engine, conversation: Conversation, prompt: list[int], completion: Completion, *, logprobs: bool
) -> Reply:
    """The reply that a completion says. EngineTrouble only where the engine is gone."""
    message, resolved = await _parsed(engine, conversation, prompt, completion, logprobs=logprobs)
    malformed = message is None or not well_formed(message)
    if message is None or malformed:
        message = {"role": "assistant", "content": await engine.detokenize(shown(completion))}
    if isinstance(completion.stop_reason, str):
        message = {**message, "content": before_stop(message.get("content") or "", completion.stop_reason)}
    if conversation.tools and not message.get("tool_calls"):
        marker = (await engine.facts()).tool_marker
        malformed = malformed or bool(marker and marker in (message.get("content") or ""))
    if completion.finish_reason == "length":
        return Reply(message, "length", Status.TRUNCATED, resolved)
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    return Reply(message, finish, Status.MODEL_ERROR if malformed else Status.OK, resolved)


def shown(completion: Completion) -> list[int]:
    """The ids a reader sees: all but the end-of-turn token, which the engine's derender would print."""
    return completion.token_ids[:-1] if completion.ended_turn else completion.token_ids


def before_stop(text: str, stop: str) -> str:
    """Text up to the stop string: the ids keep it, the client does not see it."""
    return text.partition(stop)[0]


def well_formed(message: Message) -> bool:
    """Whether every tool call has a name and a JSON object as its arguments."""
    for call in message.get("tool_calls") or []:
        try:
            arguments = json.loads(call["function"]["arguments"])
        except (ValueError, RecursionError):
            return False
        if not isinstance(arguments, dict) or not call["function"]["name"]:
            return False
    return True


async def _parsed(
    engine: Engine, conversation: Conversation, prompt: list[int], completion: Completion, *, logprobs: bool
) -> tuple[Message | None, dict[str, Any] | None]:
    """The engine's reading of the completion, or None where its parser chokes."""
    ids = shown(completion)
    if not ids:  # only an end-of-turn token: derender refuses an empty list
        return {"role": "assistant", "content": ""}, {"content": []} if logprobs else None
    raw = completion.raw_logprobs[: len(ids)] if logprobs else None
    try:
        choice = await engine.derender(ids, prompt, conversation, raw)
    except (EngineRefused, EngineTrouble):  # or the engine is gone: then the next request to it says so
        return None, None
    return _plain(choice["message"]), choice.get("logprobs") if logprobs else None


def _plain(message: Message) -> Message:
    """The engine's message with the fields that say something."""
    plain: Message = {"role": "assistant", "content": message.get("content")}
    calls = message.get("tool_calls") or []
    if calls:
        plain["tool_calls"] = [{"id": call["id"], "type": "function", "function": call["function"]} for call in calls]
    else:
        plain["content"] = plain["content"] or ""
    if message.get("reasoning"):
        plain["reasoning"] = message["reasoning"]
    return plain
