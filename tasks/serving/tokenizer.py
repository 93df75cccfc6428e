"""Whether an engine reads and writes text as a version does: a reload swaps weights, never the tokenizer it started with.

Weights that were trained with other token ids, or to another chat template, would answer nonsense with good log-probs.
"""

import json
from pathlib import Path

from tokenizers import Tokenizer

from lakehouse.records import digest, dumps
from tasks.serving.engine import Engine
from tasks.serving.errors import ModelError

FILE = "tokenizer.json"
SAMPLE = (
    "The naïve 日本 key: a@b.example, +49 (30) 123-456\n\tdef f(x):\n        return {'x': x ** 2}  # 12345\r\n"
    "<|im_start|>user\n Überraschung 🙂 \u200b...!?<|im_end|>"
)


def check(engine: Engine, folder: Path) -> str:
    """The digest of the tokenizer that engine and model folder share. ModelError where they have two."""
    here = engine.folder() if (engine.folder() / FILE).is_file() else None  # an engine elsewhere is asked only
    ours = digest_of(folder, template=here is not None)
    theirs = digest_of(here) if here else None
    ids = engine.tokenize(SAMPLE)
    if ids != _tokenizer(folder).encode(SAMPLE, add_special_tokens=False).ids or theirs not in (None, ours):
        raise ModelError(
            f"the tokenizer or chat template of {folder} (digest {ours[:12]}) is not the one that the engine at {engine.url} "
            f"serves ({(theirs or digest(dumps(ids)))[:12]}): a reload swaps weights only. Start an engine with that folder: "
            "LAKELOOP_MODEL, then `lakeloop down` and `lakeloop up`; or train from a version with the engine's tokenizer"
        )
    return ours


def digest_of(folder: Path, *, template: bool = True) -> str:
    """SHA-256 over what makes ids of text and text of ids: the vocabulary with its ids, a sample's ids, the chat template."""
    tokenizer = _tokenizer(folder)
    parts = [dumps(tokenizer.get_vocab()), dumps(tokenizer.encode(SAMPLE, add_special_tokens=False).ids)]
    return digest(*parts, *([_template(folder)] if template else []))


def _tokenizer(folder: Path) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_file(str(folder / FILE))
    except Exception as error:  # the library raises plain Exception for a file that it cannot read
        raise ModelError(f"{folder / FILE} is no tokenizer: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _template(folder: Path) -> str:
    """The chat template's text, wherever the folder keeps it."""
    apart = folder / "chat_template.jinja"
    if apart.is_file():
        return apart.read_text()
    config = folder / "tokenizer_config.json"
    return str(json.loads(config.read_text()).get("chat_template") or "") if config.is_file() else ""
