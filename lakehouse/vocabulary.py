"""Which token ids mean what: a digest that two tokenizers share only where every id stands for the same text in both."""

import json
from pathlib import Path

from lakehouse.records import digest, dumps


def vocabulary_digest(tokenizer_json: Path) -> str:
    """SHA-256 over vocabulary, merges and added tokens of a `tokenizer.json`; how the file is formatted does not count."""
    told = json.loads(tokenizer_json.read_text(encoding="utf-8"))
    added = sorted((one["id"], one["content"]) for one in told.get("added_tokens") or ())
    model = told["model"]
    return digest(dumps(model.get("vocab")), dumps(model.get("merges")), dumps(added))
