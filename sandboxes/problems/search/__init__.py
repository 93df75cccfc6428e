"""Multi-hop questions over a local corpus, answered with the tools `search`, `open` and `answer`."""

from sandboxes.problems.search import build
from sandboxes.problems.search.kind import KIND

__all__ = ["KIND", "build"]
