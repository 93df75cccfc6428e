"""What the gateway must know of the engine's template, learned by rendering: it has no tokenizer of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from lakehouse.records import digest, dumps
from sandboxes.gateway.errors import EngineRefused, EngineTrouble
from sandboxes.gateway.sessions.recorded import Conversation, Message

NAME = "probe"
TOOL: Message = {
    "type": "function",
    "function": {"name": NAME, "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}},
}
USER: Message = {"role": "user", "content": "a b\n"}
SAID: Message = {"role": "assistant", "content": "Yes."}  # what no template says of its own accord
CALLED: Message = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "probe0000", "type": "function", "function": {"name": NAME, "arguments": '{"a": "b"}'}}],
}
OBSERVED: Message = {"role": "tool", "content": "d", "tool_call_id": "probe0000"}
Ending = Literal["prompt", "closed", "open"]
Route = Literal["generate", "chat"]
PUNCTUATION = ' \n{[:"'
COLD = 0.5  # the temperature at which log-probs are looked at, besides 1
LIKELY = 4  # tokens that are compared there
LEAST_NATS = 0.02  # likelihoods closer than this tell nothing


@dataclass(frozen=True)
class Rendered:
    """Token ids of a conversation, and the sampling parameters as the engine resolved them."""

    token_ids: list[int]
    sampling: dict[str, Any]
    thinking: Message = field(default_factory=dict)  # what generation must be told of the reasoning parser


@dataclass(frozen=True)
class Facts:
    """One engine's version and template."""

    version: str
    route: Route
    template_digest: str  # over the rendered ids of fixed conversations: template and tokenizer together
    turn_end: tuple[int, ...]  # what the template puts after an assistant's text, the end-of-turn token first
    tool_marker: str  # the text a tool call begins with; empty where it cannot be told
    before_call: str  # what the template puts between an assistant's text and its first tool call
    vocabulary: int | None  # how many token ids there are; None where the engine does not tell
    as_written: bool  # without tools and reasoning, what derender says is the text of the ids and nothing else
    processed: bool  # log-probs are those of the distribution that was sampled from, temperature included


class Renders(Protocol):
    """The part of the engine that probing needs."""

    async def version(self) -> str: ...

    async def route(self) -> Route: ...

    async def vocabulary(self) -> int | None: ...

    async def render(
        self, conversation: Conversation, sampling: Mapping[str, Any] | None = None, ending: Ending = "prompt"
    ) -> Rendered: ...

    async def detokenize(self, token_ids: Sequence[int]) -> str: ...

    async def likely(self, prompt_ids: Sequence[int], temperature: float) -> list[float]: ...

    async def derender(
        self,
        token_ids: Sequence[int],
        prompt_ids: Sequence[int],
        conversation: Conversation,
        logprobs: list[Any] | None,
    ) -> dict[str, Any]: ...


async def probe(engine: Renders, before: Facts | None = None) -> Facts:
    """Ask the engine; `before`: what the same process told earlier. EngineTrouble where it does not answer."""
    opening = await _opening(engine)
    marker = await _tool_marker(engine, opening)
    return Facts(
        version=await engine.version(),
        route=await engine.route(),
        template_digest=await _template_digest(engine),
        turn_end=await _turn_end(engine),
        tool_marker=marker,
        before_call=await _before_call(engine, opening, marker),
        vocabulary=await engine.vocabulary(),
        as_written=await _as_written(engine),
        # Once: it generates for this, and while weights are swapped it does not.
        processed=before.processed if before else await _processed(engine),
    )


async def _render(engine: Renders, conversation: Conversation, ending: Ending = "prompt") -> list[int] | None:
    """Token ids, or None where the template refuses (some have no system or tool turns)."""
    try:
        return (await engine.render(conversation, ending=ending)).token_ids
    except EngineRefused:
        return None


async def _template_digest(engine: Renders) -> str:
    plain, system = Conversation([USER, SAID, USER]), Conversation([{"role": "system", "content": "s"}, USER])
    tooled = Conversation([USER, CALLED, OBSERVED], [TOOL])
    return digest(*[dumps(await _render(engine, conversation)) for conversation in (plain, system, tooled)])


async def _turn_end(engine: Renders) -> tuple[int, ...]:
    said = Conversation([USER, SAID])
    closed = await _render(engine, said, "closed")
    cut = await _render(engine, said, "open")
    if closed is None or cut is None or closed[: len(cut)] != cut:
        return ()
    return tuple(closed[len(cut) :])


async def _tool_marker(engine: Renders, opening: str) -> str:
    """What a rendered tool call says before its JSON, or before the function's name where it is no JSON."""
    head, name, _ = (await _rendered_turn(engine, CALLED)).removeprefix(opening).partition(NAME)
    return head.partition("{")[0].rstrip(PUNCTUATION) if name else ""


async def _before_call(engine: Renders, opening: str, marker: str) -> str:
    said = (await _rendered_turn(engine, {**CALLED, **SAID})).removeprefix(opening)
    text: str = SAID["content"]
    if not marker or not said.startswith(text) or marker not in said:
        return ""
    return said.removeprefix(text).partition(marker)[0]


async def _as_written(engine: Renders) -> bool:
    """Tried with a turn that calls a tool: its marks, the end of turn and the line break behind it must all be said."""
    if await engine.route() == "chat":
        return False
    before, ids = await _turn(engine, CALLED)
    if not ids:  # a template without tools
        before, ids = await _turn(engine, SAID)
    if not ids:
        return False
    try:
        told = (await engine.derender(ids, before, Conversation([USER]), None))["message"]
    except (EngineRefused, EngineTrouble):  # answers are parsed without it then, as after any such trouble
        return False
    said, whole = told.get("content") or "", await engine.detokenize(before + ids)
    return await engine.detokenize(before) + said == whole


async def _processed(engine: Renders) -> bool:
    """At half the temperature tokens lie twice as far apart, in nats; raw log-probs stay as they are."""
    prompt = await _render(engine, Conversation([USER]))
    warm, cold = [await engine.likely(prompt or [0], temperature) for temperature in (1.0, COLD)]
    spread = warm[0] - warm[LIKELY - 1]
    return spread < LEAST_NATS or cold[0] - cold[LIKELY - 1] > 1.5 * spread


async def _opening(engine: Renders) -> str:
    """What the template puts before an assistant's text, beyond the prompt: an empty thought, with some."""
    return (await _rendered_turn(engine, SAID)).partition(SAID["content"])[0]


async def _rendered_turn(engine: Renders, message: Message) -> str:
    """A turn's text after its prompt; empty where the template does not go on from the prompt."""
    _, turn = await _turn(engine, message)
    return await engine.detokenize(turn) if turn else ""


async def _turn(engine: Renders, message: Message) -> tuple[list[int], list[int]]:
    """A prompt's ids and those of its turn, which are none where the template does not go on from the prompt."""
    before = await _render(engine, Conversation([USER], [TOOL]))
    after = await _render(engine, Conversation([USER, message], [TOOL]), "closed")
    if before is None or after is None or after[: len(before)] != before:
        return before or [], []
    return before, after[len(before) :]
