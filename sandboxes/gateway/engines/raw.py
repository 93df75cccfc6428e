"""Raw prompts, text or token ids: no template makes them and no parser reads what follows.

A text that goes on from a recorded call (the prompt, what was said, then more, as agents do that write their own turns)
keeps the recorded ids, as a conversation does.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from sandboxes.gateway.sessions.recorded import Conversation, Message, Recorded

NAME = "raw prompt"  # no client's: names have no spaces
RENDER = "/v1/completions/render"
DERENDER = "/v1/completions/derender"


class Spells(Protocol):
    """The part of the engine that is needed."""

    async def tokenize(self, text: str) -> list[int]: ...

    async def detokenize(self, token_ids: Sequence[int]) -> str: ...


def conversation(prompt: str | Sequence[int]) -> Conversation:
    """A prompt as what is rendered and recorded: one message of a user by the name `raw prompt`."""
    if isinstance(prompt, str):
        return Conversation([_message(prompt)], raw=prompt)
    return Conversation([_message("")], raw=tuple(prompt))


async def spelled(engine: Spells, said: Conversation) -> Conversation:
    """The conversation whose message holds the prompt's text, also where the client sent ids."""
    if said.raw is None or isinstance(said.raw, str):
        return said
    return replace(said, messages=[_message(await engine.detokenize(said.raw))])


async def continued(
    engine: Spells, prompt: str | Sequence[int], recorded: Iterable[Recorded], rendered: list[int]
) -> list[int] | None:
    """The ids to send for `prompt`, of which `rendered` are the engine's own. None: a recorded call is in it, but its
    ids cannot be."""
    if not isinstance(prompt, str):
        return rendered  # the client says the ids
    before = [call for call in recorded if is_raw(call) and prompt.startswith(_text(call))]
    if not before:
        return rendered
    known = max(before, key=lambda call: len(call.all_token_ids)).all_token_ids
    if rendered[: len(known)] == known:
        return rendered
    whole, head = await engine.detokenize(rendered), await engine.detokenize(known)
    if not whole.startswith(head):  # such as an end of turn, which a text does not hold
        return None
    spliced = known + (await engine.tokenize(whole[len(head) :]) if len(whole) > len(head) else [])
    return spliced if await engine.detokenize(spliced) == whole else None


def is_raw(call: Recorded) -> bool:
    """Whether a recorded call had a raw prompt."""
    return call.answered and call.intent.messages[0].get("name") == NAME


def rendering(model: str, prompt: str | Sequence[int], sampling: Mapping[str, Any]) -> dict[str, Any]:
    """The body for the engine's render route. It takes the number of log-probs where chats take two parameters."""
    body = {"model": model, **sampling, "prompt": prompt if isinstance(prompt, str) else list(prompt)}
    if body.pop("logprobs", None):
        body["logprobs"] = body.pop("top_logprobs", 0)
    return body


def choice(told: Mapping[str, Any]) -> dict[str, Any]:
    """A derendered choice in the form of a chat's."""
    message: Message = {"role": "assistant", "content": told["text"]}
    lists = told.get("logprobs")
    if not lists:
        return {"message": message, "logprobs": None}
    rows = zip(lists["tokens"], lists["token_logprobs"], lists["top_logprobs"], strict=True)
    content = [_entry(token, value, top or {}) for token, value, top in rows]
    return {"message": message, "logprobs": {"content": content}}


def _entry(token: str, logprob: float, top: Mapping[str, float]) -> Message:
    tops = [{"token": one, "logprob": value, "bytes": list(one.encode())} for one, value in top.items()]
    return {"token": token, "logprob": logprob, "bytes": list(token.encode()), "top_logprobs": tops}


def _message(text: str) -> Message:
    return {"role": "user", "name": NAME, "content": text}


def _text(call: Recorded) -> str:
    """Prompt and answer, as a client has them."""
    assert call.answer is not None
    assert call.answer.message is not None
    return str(call.intent.messages[0]["content"]) + str(call.answer.message.get("content") or "")
