"""The shipped problems of every kind, as records."""

from collections.abc import Sequence

from lakehouse.records import Problem
from sandboxes.problems import python, search, swe
from sandboxes.problems.swe.shipped import fetch_sources

LOADERS = {"python": python.build.build, "search": search.build.build, "swe": swe.load}


class UnknownKind(LookupError):
    """No kind of problem has this name."""


def load(kind: str) -> list[Problem]:
    """The shipped problems of a kind. UnknownKind names those there are."""
    if kind not in LOADERS:
        raise UnknownKind(f"no kind of problem is called {kind!r}; there are {', '.join(sorted(LOADERS))}")
    return LOADERS[kind]()


def prepare(problems: Sequence[Problem]) -> None:
    """Fetch now what episodes of these problems would otherwise wait for. EnvironmentFailure where it cannot be had."""
    fetch_sources([problem for problem in problems if problem.kind == "swe"])
