"""How documents are cut and matched: terms of an index, pages, the line that a query is after."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

PAGE_CHARS = 600
LINE_CHARS = 160  # of one line that a search or a find shows

_TERM = re.compile(r"\w+")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d)")
_BREAKS = ("\n", ". ", " ")  # where a page may end, the best first


def terms(text: str) -> list[str]:
    """Words and numbers of any script in lower case, without accents; `1,285,216` is one of them."""
    if not text.isascii():
        text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return _TERM.findall(_THOUSANDS.sub("", text.casefold()))


def pages(text: str, limit: int = PAGE_CHARS) -> list[str]:
    """The text in pages of at most `limit` characters, cut after a line, else a sentence, else a word; never none."""
    found = []
    while len(text) > limit:
        end = next((at + len(mark) for mark in _BREAKS if (at := text.rfind(mark, limit // 2, limit)) > 0), limit)
        found.append(text[:end].strip())
        text = text[end:].lstrip()
    return [*found, text]


def lines(text: str) -> list[str]:
    """The lines of a text; a long one falls into its sentences, a long sentence into pieces."""
    found: list[str] = []
    for line in text.splitlines():
        sentences = [line] if len(line) <= LINE_CHARS else re.split(r"(?<=[.!?]) ", line)
        found += [piece for sentence in sentences for piece in pages(sentence, LINE_CHARS) if piece]
    return found


@lru_cache(maxsize=8192)
def _read(text: str) -> Sequence[tuple[str, frozenset[str]]]:
    """The lines with their terms: the documents that episodes find are found again and again."""
    return [(line, frozenset(terms(line))) for line in lines(text)]


def best_line(text: str, wanted: Iterable[str]) -> str:
    """The first of the lines that share the most different terms with `wanted`."""
    asked = frozenset(wanted)
    return max(_read(text), key=lambda line: len(asked & line[1]), default=("", asked))[0]


def holding(text: str, wanted: Iterable[str]) -> list[str]:
    """The lines that hold every wanted term, in order; none where nothing is wanted."""
    asked = frozenset(wanted)
    return [line for line, held in _read(text) if asked and asked <= held]
