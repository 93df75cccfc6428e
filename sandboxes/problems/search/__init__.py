"""Multi-hop questions over a local corpus, answered with the tools `search`, `open`, `find` and `answer`."""

from sandboxes.problems.search import build
from sandboxes.problems.search.documents import formats, imports
from sandboxes.problems.search.kind import KIND

__all__ = ["KIND", "build", "formats", "imports"]
