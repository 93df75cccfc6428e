"""The `search` kind: a problem's spec says which tools and which corpus its episodes have."""

import asyncio
import json
from collections.abc import Sequence

from pydantic import ValidationError

from lakehouse.records import Problem
from sandboxes.backends.base import Backend
from sandboxes.problems.base import Environment, EnvironmentFailure, Fact, ToolCall
from sandboxes.problems.search import corpus, env
from sandboxes.problems.search.documents import store, world
from sandboxes.problems.search.env import AnyWorld, SearchEnvironment, solved
from sandboxes.prompts import SHIPPED, Prompts

Spec = env.Spec | world.Spec


def read_spec(problem: Problem) -> Spec:
    """The problem's spec; EnvironmentFailure where it is not one of a search problem."""
    try:
        raw = json.loads(problem.spec)
        return (world.Spec if "tools" in raw else env.Spec).model_validate(raw)
    except (ValueError, TypeError, ValidationError) as error:
        raise EnvironmentFailure(f"{problem.problem_id}: the spec is not a search problem's: {error}") from error


class SearchKind:
    """`base.Kind`. Passages are those of the shipped corpus unless another is given."""

    name = "search"
    boxed = False

    def __init__(self, passages: corpus.Corpus | None = None) -> None:
        self._passages = passages

    async def open(self, problem: Problem, backend: Backend, prompts: Prompts = SHIPPED) -> Environment:
        """The environment of one episode; the backend is not asked for a box."""
        return SearchEnvironment(await asyncio.to_thread(self._world, problem), prompts.of(problem))

    def _world(self, problem: Problem) -> AnyWorld:
        spec = read_spec(problem)
        if isinstance(spec, world.Spec):
            documents = store.find(spec.corpus_name, spec.corpus)
            if documents is None:
                raise EnvironmentFailure(
                    f"{problem.problem_id}: its corpus {spec.corpus[:12]} is not on this machine: import the problems again here"
                )
            _must_be_of(problem, spec, documents.digest)
            return world.World(spec, documents)
        passages = self._passages or corpus.load()
        _must_be_of(problem, spec, passages.digest)
        return env.World(spec, passages)

    def expert(self, problem: Problem) -> Sequence[ToolCall]:
        return read_spec(problem).expert

    def solved(self, facts: Sequence[Fact]) -> bool:
        return solved(facts)


def _must_be_of(problem: Problem, spec: Spec, digest: str) -> None:
    if digest != spec.corpus:
        raise EnvironmentFailure(
            f"{problem.problem_id} was made for corpus {spec.corpus[:12]}, here is {digest[:12]}: build the problems again"
        )


KIND = SearchKind()
