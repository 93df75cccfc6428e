"""The shipped problems of every kind, as records."""

from lakehouse.home import home
from lakehouse.records import Problem
from sandboxes.problems import search, swe

LOADERS = {"search": search.build.build, "swe": lambda: swe.load(home())}


def load(kind: str) -> list[Problem]:
    """The shipped problems of a kind; LookupError where there is no such kind."""
    if kind not in LOADERS:
        raise LookupError(f"no kind of problem is called {kind!r}; there are {', '.join(sorted(LOADERS))}")
    return LOADERS[kind]()
