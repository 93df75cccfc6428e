"""The scripted engine's tokens as a `tokenizer.json`, for whoever has to find text in token ids."""

import json

from sandboxes.gateway.scripted.text import SPECIAL, WORDS


def tokenizer_json() -> str:
    """Hugging Face's format: byte-level BPE without merges."""
    names = [_letters(bytes([byte])) for byte in range(256)] + list(SPECIAL) + [_letters(word) for word in WORDS]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [{"id": 256 + at, "content": name, "special": True, **flags} for at, name in enumerate(SPECIAL)]
    vocabulary = {name: number for number, name in enumerate(names)}
    return json.dumps(
        {
            "version": "1.0",
            "added_tokens": added,
            "pre_tokenizer": level,
            "decoder": level,
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
        }
    )


def _letters(raw: bytes) -> str:
    """Each byte as a printable letter, as GPT-2's vocabulary writes it."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return "".join(chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in raw)
