"""The `search` kind."""

import asyncio
from collections.abc import Sequence

from lakehouse.records import Problem
from sandboxes.backends.base import Backend
from sandboxes.problems.base import Environment, Fact, ToolCall
from sandboxes.problems.search.corpus import Corpus, load
from sandboxes.problems.search.env import SearchEnvironment, read_spec, solved


class SearchKind:
    """`base.Kind` over one corpus: the shipped one unless another is given."""

    name = "search"

    def __init__(self, corpus: Corpus | None = None) -> None:
        self._corpus = corpus

    async def open(self, problem: Problem, backend: Backend) -> Environment:
        """The environment of one episode; the backend is not asked for a box."""
        corpus = await asyncio.to_thread(load) if self._corpus is None else self._corpus
        return SearchEnvironment(problem, corpus)

    def expert(self, problem: Problem) -> Sequence[ToolCall]:
        return read_spec(problem).expert

    def solved(self, facts: Sequence[Fact]) -> bool:
        return solved(facts)


KIND = SearchKind()
