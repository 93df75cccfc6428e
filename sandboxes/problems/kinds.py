"""The kinds of problems there are, by name."""

from sandboxes.problems import external, python, search, swe, terminal
from sandboxes.problems.base import EnvironmentFailure, Kind

KINDS: dict[str, Kind] = {
    kind.name: kind for kind in (external.KIND, python.KIND, search.KIND, swe.KIND, terminal.KIND)
}


def kind_of(name: str) -> Kind:
    """The kind with this name; EnvironmentFailure where there is none."""
    if name not in KINDS:
        raise EnvironmentFailure(f"no kind of problem is called {name!r}; there are {', '.join(sorted(KINDS))}")
    return KINDS[name]
