"""The prompt of a call: recorded ids where the conversation continues a recorded call, rendered ids for the rest.

Bridge tokens, between a sampled turn and the next prompt, come from rendering: render the conversation up to the end of
the assistant turn and beyond it, and take the difference. The result must equal the rendered ids or detokenise to the
same text, or to a turn whose tool calls say the same in other spaces; where it does not, the rendered ids are used and
the call starts a segment, `retokenised`.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sandboxes.gateway.engines import raw
from sandboxes.gateway.engines.engine import Engine
from sandboxes.gateway.engines.facts import Rendered, Route
from sandboxes.gateway.errors import EngineRefused
from sandboxes.gateway.sessions.recorded import Conversation, Message, Recorded, prefix_digests

HALF = "\ufffd"  # what bytes that are no whole character are shown as


@dataclass(frozen=True)
class Prompt:
    """What to send. `retokenised` says that a recorded turn is in it with other ids than were sampled."""

    token_ids: list[int]
    rendered: Rendered  # the engine's own ids for the conversation, and the sampling parameters as it resolved them
    route: Route
    retokenised: bool = False
    said: str | None = None  # the digest of the whole conversation, see `prefix_digests`; None for a raw prompt


async def build(
    engine: Engine, conversation: Conversation, recorded: dict[str, Recorded], sampling: Mapping[str, Any]
) -> Prompt:
    """The prompt of `conversation`; `recorded`: digest of a conversation with its answer -> the call."""
    rendered = await engine.render(conversation, sampling)
    route = await engine.route()
    if conversation.raw is not None:
        continued = await raw.continued(engine, conversation.raw, recorded.values(), rendered.token_ids)
        return Prompt(continued or rendered.token_ids, rendered, route, retokenised=continued is None)
    digests = prefix_digests(conversation.messages, conversation.tools, conversation.template_kwargs)
    turns = next((n for n in range(len(digests) - 1, 0, -1) if digests[n] in recorded), None)
    as_rendered = Prompt(rendered.token_ids, rendered, route, said=digests[-1])
    if turns is None:
        return as_rendered
    call = recorded[digests[turns]]
    if rendered.token_ids[: len(call.all_token_ids)] == call.all_token_ids:
        return as_rendered  # the text tokenises as it was sampled: nothing to splice
    spliced = None
    if route != "chat":  # there the engine renders by itself: it cannot be given ids
        spliced = await _splice(engine, conversation, turns, call, rendered.token_ids)
    if spliced is None:
        return replace(as_rendered, retokenised=True)
    return replace(as_rendered, token_ids=spliced)


async def _splice(
    engine: Engine, conversation: Conversation, turns: int, call: Recorded, rendered: list[int]
) -> list[int] | None:
    """Recorded ids + bridge, or None where the check fails."""
    known = replace(conversation, messages=conversation.messages[:turns])
    upto = (await engine.render(known, ending="closed")).token_ids
    if rendered[: len(upto)] != upto:  # later turns change how this one is rendered
        return None
    tail = await _turn_end(engine, known, call, upto)
    if tail is None:
        return None
    spliced = call.all_token_ids + tail + rendered[len(upto) :]
    said, meant = await asyncio.gather(engine.detokenize(spliced), engine.detokenize(rendered))
    if _whole(said) == _whole(meant) or await _says_the_same(engine, known, call, upto[: len(upto) - len(tail)]):
        return spliced
    return None


async def _says_the_same(engine: Engine, known: Conversation, call: Recorded, upto: list[int]) -> bool:
    """Whether the last turn of `upto`, as the template writes it, says what was sampled, whatever stands before it.

    Templates write a tool call's arguments anew, as JSON with their own spaces and escapes, where a model writes its own.
    So the turns before may differ in that; they are the call's own prompt, which was checked when it was sent.
    """
    assert call.answer is not None
    ends = int(call.answer.ended_turn)
    sampled = call.answer.completion_token_ids[: len(call.answer.completion_token_ids) - ends]
    try:
        before = (await engine.render(replace(known, messages=known.messages[:-1]))).token_ids
        written = upto[len(before) : len(upto) - ends]
        if upto[: len(before)] != before or not written or not sampled:
            return False
        texts = [await engine.detokenize(before + ids) for ids in (written, sampled)]
        if _whole(texts[0]) == _whole(texts[1]):
            return True
        told = [(await engine.derender(ids, before, known, None))["message"] for ids in (written, sampled)]
    except EngineRefused:  # a conversation that begins with this turn, or no parser reads it
        return False
    meant = _calls(told[0])
    return bool(meant) and meant == _calls(told[1]) and _texts(told[0]) == _texts(told[1])


def _texts(message: Message) -> tuple[str, str]:
    return message.get("reasoning") or "", message.get("content") or ""


def _calls(message: Message) -> list[tuple[str, Any]] | None:
    """Name and arguments, as values, of a turn's tool calls; None where they are not JSON."""
    functions = [call["function"] for call in message.get("tool_calls") or []]
    try:
        return [(function["name"], json.loads(function["arguments"])) for function in functions]
    except ValueError:
        return None


def _whole(text: str) -> str:
    """Text without halves of characters: a turn that was cut in one keeps it in its ids, but no message has it."""
    return text.replace(HALF, "")


async def _turn_end(engine: Engine, known: Conversation, call: Recorded, upto: list[int]) -> list[int] | None:
    """What the template puts after the sampled tokens of the last turn of `upto`."""
    assert call.answer is not None
    if call.answer.ended_turn:
        end = call.answer.completion_token_ids[-1]
        if end not in upto:
            return None
        return upto[len(upto) - upto[::-1].index(end) :]
    # Cut off by the length limit: the template's own end of turn is missing too.
    return list((await engine.facts()).turn_end)


async def demonstrated(
    engine: Engine, conversation: Conversation, message: Message, rendered: list[int]
) -> list[int] | None:
    """Completion ids of a demonstrated turn: what rendering it adds to the prompt, up to the end-of-turn token.

    None where the rendered turn does not begin with the rendered prompt or does not end as the template ends turns.
    """
    whole = replace(conversation, messages=[*conversation.messages, message])
    after = (await engine.render(whole, ending="closed")).token_ids
    end = list((await engine.facts()).turn_end)  # such as <|im_end|> and a line break: a model samples only the first
    turn = after[len(rendered) :]
    if not end or after[: len(rendered)] != rendered or turn[-len(end) :] != end:
        return None
    return turn[: len(turn) - len(end) + 1]
