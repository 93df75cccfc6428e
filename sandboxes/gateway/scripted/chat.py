"""The scripted engine's chat completions: what vLLM makes of sampled ids where a client asked for messages."""

import math
from collections.abc import Sequence
from typing import Any

from sandboxes.gateway.scripted import text


class Said:
    """One chat completion over one generation. A stream's chunks are to be made in order."""

    def __init__(self, body: dict[str, Any], prompt: list[int], *, tools: bool, think: bool) -> None:
        self._body = body
        self._prompt = prompt
        self._tools = tools
        self._think = think
        self._ids: list[int] = []
        self._shown = {"reasoning": 0, "content": 0}

    def whole(self, choice: dict[str, Any]) -> dict[str, Any]:
        """The completion of a generated choice."""
        message = text.parse(shown(choice), tools=self._tools, think=self._think)
        return {"prompt_token_ids": self._prompt, "choices": [{**self._told(choice), "message": message}]}

    def chunk(self, step: dict[str, Any]) -> dict[str, Any]:
        """The chunk of one generated step."""
        first = not self._ids
        self._ids += step["token_ids"]
        said = showable(self._ids, tools=self._tools, think=self._think)
        stop = step.get("stop_reason")
        if stop:
            said["content"] = said["content"].partition(stop)[0]
        elif not step["finish_reason"]:  # what may be the start of a stop string waits
            held = max((len(one) - 1 for one in self._body.get("stop") or []), default=0)
            said["content"] = said["content"][: len(said["content"]) - held]
        delta: dict[str, Any] = {"role": "assistant"} if first else {}
        for kind, whole in said.items():
            new = whole[self._shown[kind] :]
            self._shown[kind] = max(len(whole), self._shown[kind])
            if new:
                delta[kind] = new
        if step["finish_reason"]:
            delta |= self._calls()
        prompt = {"prompt_token_ids": self._prompt} if first else {}
        return {**prompt, "choices": [{**self._told(step), "delta": delta}]}

    def _calls(self) -> dict[str, Any]:
        calls = text.parse(text.decode(self._ids), tools=self._tools, think=self._think).get("tool_calls") or []
        return {"tool_calls": [{"index": at, **call} for at, call in enumerate(calls)]} if calls else {}

    def _told(self, choice: dict[str, Any]) -> dict[str, Any]:
        """The choice without what chat completions do not tell, and with token texts."""
        entries = choice["logprobs"]["content"]
        kept = {name: value for name, value in choice.items() if name != "weight_versions"}
        return {**kept, "logprobs": {"content": named(entries)} if self._body.get("logprobs") else None}


def shown(choice: dict[str, Any]) -> str:
    """The text of a generated choice: without the end of its turn, a stop string or half a character."""
    stop = choice["stop_reason"]
    ended = choice["finish_reason"] == "stop" and stop is None
    said = text.decode(choice["token_ids"][:-1] if ended else choice["token_ids"]).rstrip("\ufffd")
    return said.partition(stop)[0] if stop else said


def named(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Log-probs with token texts in place of ids."""
    return [
        {
            "token": text.decode([one["token_id"]]),
            "logprob": one["logprob"],
            "bytes": list(text.decode([one["token_id"]]).encode()),
            **({"top_logprobs": named(one["top_logprobs"])} if "top_logprobs" in one else {}),
        }
        for one in entries
    ]


def showable(ids: Sequence[int], *, tools: bool, think: bool) -> dict[str, str]:
    """Reasoning and content of a reply that goes on: nothing from the first tool call on, no half of a character."""
    said = text.decode([one for one in ids if one != text.END]).rstrip("\ufffd")
    reasoning, content = text.thought(said) if think else ("", said)
    return {"reasoning": reasoning, "content": content.partition("<tool_call>")[0] if tools else content}


def likely(temperature: float, *, told: float) -> dict[str, Any]:
    """A choice of one token, drawn at a temperature, with the likeliest ones: their log-probs are those of temperature `told`.

    As vLLM does it: five tokens, the drawn one among them. At temperature 1 that is an unlikely one.
    """
    logits = [-place / told for place in range(10)]
    whole = math.log(sum(map(math.exp, logits)))
    drawn = 9 if temperature == 1 else 0
    places = [drawn, *(place for place in range(10) if place != drawn)][:5]
    tops = [{"token_id": place, "logprob": logits[place] - whole, "rank": place + 1} for place in places]
    return {"index": 0, "token_ids": [drawn], "logprobs": {"content": [{**tops[0], "top_logprobs": tops}]}}


def raw_choice(choice: dict[str, Any]) -> dict[str, Any]:
    """A generated choice as a text completion: no parser, special tokens left out."""
    entries = named((choice.get("logprobs") or {}).get("content") or [])
    logprobs = {
        "tokens": [entry["token"] for entry in entries],
        "token_logprobs": [entry["logprob"] for entry in entries],
        "top_logprobs": [{one["token"]: one["logprob"] for one in entry["top_logprobs"]} or None for entry in entries],
    }
    return {"text": _plain(choice["token_ids"]), "logprobs": logprobs if choice.get("logprobs") else None}


def raw_step(body: dict[str, Any]) -> dict[str, Any]:
    """The text that a stream's next ids add; half a character waits for its other half."""
    state = body.get("stream_state") or {"ids": [], "shown": 0}
    ids = state["ids"] + [one for choice in body["generate_chunk"]["choices"] for one in choice["token_ids"]]
    said = _plain(ids).rstrip("\ufffd")
    chunk = {"choices": [{"index": 0, "text": said[state["shown"] :]}]}
    return {"chunk": chunk, "stream_state": {"ids": ids, "shown": len(said)}}


def _plain(token_ids: Sequence[int]) -> str:
    return text.decode([one for one in token_ids if not 256 <= one < 256 + len(text.SPECIAL)])
