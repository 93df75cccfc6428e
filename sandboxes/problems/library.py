"""The shipped problems of every kind, as records."""

from collections.abc import Sequence

from lakehouse.records import Problem
from sandboxes.problems import python, search, swe
from sandboxes.problems.swe.shipped import fetch_sources

LOADERS = {"python": python.build.build, "search": search.build.build, "swe": swe.load}

IMPORTED = ("external",)  # kinds of which no problems are shipped: `lakeloop problems import`


class UnknownKind(LookupError):
    """No kind of problem has this name."""


def load(kind: str) -> list[Problem]:
    """The shipped problems of a kind, which may be none. UnknownKind names those there are."""
    if kind in IMPORTED:
        return []
    if kind not in LOADERS:
        there = ", ".join(sorted((*LOADERS, *IMPORTED)))
        raise UnknownKind(f"no kind of problem is called {kind!r}; there are {there}")
    return LOADERS[kind]()


def prepare(problems: Sequence[Problem]) -> None:
    """Fetch now what episodes of these problems would otherwise wait for. EnvironmentFailure where it cannot be had."""
    fetch_sources([problem for problem in problems if problem.kind == "swe"])
