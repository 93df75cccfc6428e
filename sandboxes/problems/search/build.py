"""The shipped set of search problems."""

from lakehouse.records import Problem
from sandboxes.problems.search.corpus import Corpus, load
from sandboxes.problems.search.questions import generate

SEED = 0
SIZE = 900


def build(corpus: Corpus | None = None, *, n: int = SIZE, seed: int = SEED) -> list[Problem]:
    """n proved problems over the corpus (the shipped one by default); the same call gives the same problems."""
    return generate(corpus or load(), seed, n)
