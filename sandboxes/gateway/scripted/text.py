"""The scripted engine's text side: a byte-level tokenizer, a ChatML template with tools, a parser of tool calls."""

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

SPECIAL = ("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<think>", "</think>")
# Ids 0 to 255 are bytes, then the special tokens, then merged words: a canonical encoding uses the words, a scripted
# policy never does, so that sampled ids and rendered ids differ while the text is the same.
WORDS = (b"the ", b"search", b"answer", b"name", b"arguments", b"hello", b"\n\n")
END = 257
FIRST_WORD = 256 + len(SPECIAL)
VOCABULARY = FIRST_WORD + len(WORDS)
_SPLIT = re.compile("|".join(re.escape(token) for token in SPECIAL).join("()"))
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


def encode(text: str, *, merge: bool) -> list[int]:
    """Token ids; special tokens are recognised in text, as in the tokenizers of chat models."""
    ids: list[int] = []
    for part in _SPLIT.split(text):
        ids += [256 + SPECIAL.index(part)] if part in SPECIAL else _encode_bytes(part.encode(), merge=merge)
    return ids


def _encode_bytes(raw: bytes, *, merge: bool) -> list[int]:
    ids: list[int] = []
    at = 0
    while at < len(raw):
        word = next((word for word in WORDS if merge and raw.startswith(word, at)), None)
        ids.append(FIRST_WORD + WORDS.index(word) if word else raw[at])
        at += len(word) if word else 1
    return ids


def decode(token_ids: Sequence[int]) -> str:
    """Text; bytes that are no UTF-8 become the replacement character, ids outside the vocabulary nothing."""
    return b"".join(map(_piece, token_ids)).decode(errors="replace")


def _piece(one: int) -> bytes:
    if one < 256:
        return bytes([one])
    if one < FIRST_WORD:
        return SPECIAL[one - 256].encode()
    return WORDS[one - FIRST_WORD] if one < VOCABULARY else b""


def render(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    *,
    ending: str,
    strip: bool = False,
    think: bool = False,
) -> str:
    """The prompt text. `ending`: "prompt", "closed" or "open". `strip` makes a template that trims earlier answers,
    `think` one that shows an answer's reasoning only until the user speaks again, as Qwen3's does."""
    head = [{**messages[0], "content": messages[0].get("content") or ""}] if messages[0]["role"] == "system" else []
    turns = list(messages[len(head) :])
    if tools:
        names = "Tools: " + ", ".join(tool["function"]["name"] for tool in tools)
        head = [{"role": "system", "content": "\n".join([*(one["content"] for one in head), names])}]
    asked = max((at for at, turn in enumerate(turns) if turn["role"] == "user"), default=-1)
    said = [_said(turn, strip=strip, think=think and at > asked) for at, turn in enumerate(turns)]
    shown = [*((turn, turn["content"]) for turn in head), *zip(turns, said, strict=True)]
    text = "".join(f"<|im_start|>{turn['role']}\n{content}<|im_end|>\n" for turn, content in shown)
    if ending == "open":
        return text.removesuffix("<|im_end|>\n")
    return text + "<|im_start|>assistant\n" if ending == "prompt" else text


def _said(turn: Mapping[str, Any], *, strip: bool, think: bool) -> str:
    content = turn.get("content") or ""
    if turn["role"] == "assistant" and strip:
        content = content.strip()
    thought = f"<think>{turn['reasoning']}</think>" if think and turn.get("reasoning") else ""
    return thought + content + "".join(called(call["function"]) for call in turn.get("tool_calls") or [])


def called(function: Mapping[str, Any]) -> str:
    """One tool call as the template writes it and as a policy says it. As vLLM does, it writes `{}` for arguments that are
    no JSON object."""
    try:
        given = json.loads(function["arguments"])
    except ValueError:
        given = {}
    arguments = json.dumps(given if isinstance(given, dict) else {}, ensure_ascii=False)
    return f'<tool_call>\n{{"name": "{function["name"]}", "arguments": {arguments}}}\n</tool_call>'


def parse(text: str, *, tools: bool, think: bool = False) -> dict[str, Any]:
    """An assistant message; tool calls that cannot be read stay text, as the engine's hermes parser leaves them."""
    reasoning, text = thought(text) if think else ("", text)
    plain: dict[str, Any] = {"role": "assistant", "content": text, **({"reasoning": reasoning} if reasoning else {})}
    found = _CALL.findall(text) if tools else []
    try:
        read = [json.loads(one) for one in found]
        functions = [
            {"name": one["name"], "arguments": json.dumps(one["arguments"], ensure_ascii=False)} for one in read
        ]
    except (ValueError, KeyError, TypeError):
        return plain
    if not functions:
        return plain
    calls = [{"id": f"call-{secrets.token_hex(6)}", "type": "function", "function": one} for one in functions]
    return {**plain, "content": text.partition("<tool_call>")[0] or None, "tool_calls": calls}


def thought(text: str) -> tuple[str, str]:
    """Reasoning and the rest. What begins with the marker and does not end is reasoning all through."""
    if not text.startswith("<think>"):
        return "", text
    reasoning, _, rest = text.removeprefix("<think>").partition("</think>")
    return reasoning, rest
