"""What each token stands for, in bytes: read from a model's `tokenizer.json`, which the home folder keeps by model name.

Only with it can token ids be looked through and the right ones be replaced.
"""

import json
import os
import shutil
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from lakehouse.home import home

BETWEEN = b"\n"  # stands for a control token: what is before it and what is after it are two texts
_UNKNOWN = ("<unk>", "[UNK]", "<pad>", "[PAD]", "<|pad|>", "<|endoftext|>", "<eos>", "</s>")  # in order of preference
_SAMPLE = "The naïve 日本 key: a@b.example, +49 (30) 123-456\n\t{\"x\": 'é'}"


class UnsupportedTokenizer(ValueError):
    """A tokenizer whose tokens cannot be told apart as bytes."""


class Pieces:
    """The vocabulary of one tokenizer as bytes."""

    def __init__(self, path: Path) -> None:
        """UnsupportedTokenizer where the file is none, or its tokens do not give back what it decodes."""
        try:
            told: dict[str, Any] = json.loads(path.read_bytes())
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain Exception for a file that it cannot read
            raise UnsupportedTokenizer(f"{path} is no tokenizer.json: {error}") from error
        added = {one["id"]: one for one in told.get("added_tokens", ())}
        control = {number for number, one in added.items() if one["special"]}
        size = tokenizer.get_vocab_size(with_added_tokens=True)
        in_bytes = "ByteLevel" in json.dumps(told.get("decoder"))
        self._bytes: list[bytes] = []
        for number in range(max([size, *(one + 1 for one in added)])):
            token = tokenizer.id_to_token(number)
            if token is None or number in control:
                self._bytes.append(BETWEEN)
            elif number in added:
                self._bytes.append(token.encode())
            else:
                self._bytes.append(_level(token) if in_bytes else _spaced(token))
        self.masked = _masked(told, tokenizer)
        ids = tokenizer.encode(_SAMPLE, add_special_tokens=False).ids
        again = b"".join(self.of(ids)).decode(errors="replace")
        if again.strip() != tokenizer.decode(ids, skip_special_tokens=False).strip():
            raise UnsupportedTokenizer(
                f"{path}: its tokens are neither byte-level nor pieces of text with byte fall-back"
            )

    def of(self, ids: Sequence[int]) -> list[bytes]:
        """The bytes of each token; of an id outside the vocabulary, those of a control token."""
        known = len(self._bytes)
        return [self._bytes[one] if one < known else BETWEEN for one in ids]


def keep(model_name: str, folder: Path) -> None:
    """Keep the tokenizer of a model, for whatever is landed of it. A folder without a tokenizer.json leaves none."""
    source, kept = folder / "tokenizer.json", kept_at(model_name)
    if not source.is_file():
        return
    if kept.is_file() and _mark(kept) == _mark(source):
        return
    kept.parent.mkdir(parents=True, exist_ok=True)
    draft = kept.with_name(f".{kept.name}-{os.getpid()}")
    shutil.copy2(source, draft)  # with its time, which tells whether it is another one
    draft.replace(kept)


def _mark(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def pieces_of(model_name: str) -> Pieces | None:
    """Those of the model of this name; None where its tokenizer is not kept, or is of a kind that cannot be taken apart."""
    path = kept_at(model_name)
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return _loaded(path, found.st_mtime_ns, found.st_size)


@lru_cache(8)
def _loaded(path: Path, _changed: int, _size: int) -> Pieces | None:
    try:
        return Pieces(path)
    except UnsupportedTokenizer:
        return None


def kept_at(model_name: str) -> Path:
    """Where the tokenizer of a model is kept, if it is."""
    # A name is one part of a path: Settings.model_name is the folder's.
    return home().tokenizers / f"{model_name.replace('/', '--').replace(chr(0), '')}.json"


def _masked(told: dict[str, Any], tokenizer: Tokenizer) -> int:
    """The id that takes the place of others: the unknown or padding token, or the one that parts texts."""
    names = [told["model"].get("unk_token"), *_UNKNOWN]
    numbers = [tokenizer.token_to_id(name) for name in names if name]
    special = [one["id"] for one in told.get("added_tokens", ()) if one["special"]]
    return next((number for number in [*numbers, *sorted(special)] if number is not None), 0)


def _level(token: str) -> bytes:
    """Byte-level BPE writes each byte as a printable letter (GPT-2)."""
    letters = _letters()
    return bytes(letters[letter] for letter in token) if all(letter in letters for letter in token) else token.encode()


@lru_cache(1)
def _letters() -> dict[str, int]:
    own = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in own]
    return {chr(byte): byte for byte in own} | {chr(256 + at): byte for at, byte in enumerate(others)}


def _spaced(token: str) -> bytes:
    """SentencePiece writes a space as U+2581, and a byte that is no letter as <0x0A>."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    return token.replace("\u2581", " ").encode()


def ends(pieces: Sequence[bytes]) -> np.ndarray:
    """Where each token ends, in bytes from the beginning."""
    return np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)))
