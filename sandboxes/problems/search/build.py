"""The shipped sets of search problems, by name. The first is the default: short passages, made for small models."""

from collections.abc import Callable

from lakehouse.records import Problem
from sandboxes.problems.search.corpus import Corpus, load
from sandboxes.problems.search.documents.shipped import build_countries, build_debian
from sandboxes.problems.search.questions import generate

SEED = 0
SIZE = 900


def build(corpus: Corpus | None = None, *, n: int = SIZE, seed: int = SEED) -> list[Problem]:
    """n proved problems over the corpus (the shipped one by default); the same call gives the same problems."""
    return generate(corpus or load(), seed, n)


SETS: dict[str, Callable[[], list[Problem]]] = {
    "search": build,
    "search/countries": build_countries,
    "search/debian": build_debian,
}
