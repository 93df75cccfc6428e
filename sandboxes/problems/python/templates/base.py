"""A template, and what it writes."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from textwrap import dedent

from lakehouse.records import Split


@dataclass(frozen=True)
class Draft:
    """A question before it is proved. `cells` is the oracle's code: its last line of output must be the answer."""

    question: str
    answer: Fraction
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Template:
    """One way to write problems. Whole templates belong to a split."""

    name: str
    split: Split
    difficulty: float
    write: Callable[[Random], Draft]


def draft(question: str, answer: int | Fraction, *cells: str) -> Draft:
    """A draft from indented texts."""
    return Draft(" ".join(question.split()), Fraction(answer), tuple(dedent(cell).strip() for cell in cells))
