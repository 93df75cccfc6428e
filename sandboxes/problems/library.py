"""The shipped problems of every kind, as records."""

from collections.abc import Sequence

from lakehouse.records import Problem
from sandboxes.problems import python, search, swe
from sandboxes.problems.swe.shipped import fetch_sources

# A kind, or a kind and a set of it that is loaded by name only.
LOADERS = {"python": python.build.build, **search.build.SETS, "swe": swe.load}
DEFAULTS = tuple(name for name in LOADERS if "/" not in name)

IMPORTED = ("external", "terminal")  # kinds of which no problems are shipped: `lakeloop problems import`


class UnknownKind(LookupError):
    """No kind of problem has this name."""


def load(name: str) -> list[Problem]:
    """The shipped problems of a kind or set, which may be none: a set that was imported. UnknownKind names the kinds."""
    kinds = sorted({*(known.partition("/")[0] for known in LOADERS), *IMPORTED})
    if name.partition("/")[0] not in kinds:
        raise UnknownKind(f"no kind of problem is called {name!r}; there are {', '.join(kinds)}")
    return LOADERS[name]() if name in LOADERS else []


def prepare(problems: Sequence[Problem]) -> None:
    """Fetch now what episodes of these problems would otherwise wait for. EnvironmentFailure where it cannot be had."""
    fetch_sources([problem for problem in problems if problem.kind == "swe"])
