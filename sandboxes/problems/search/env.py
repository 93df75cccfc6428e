"""The world of one search episode: `search`, `open`, `answer`."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from lakehouse.records import Problem
from sandboxes.problems.base import EnvironmentFailure, Fact, Observation, ToolCall
from sandboxes.problems.search.answers import match
from sandboxes.problems.search.corpus import ENGINE, SNIPPET_CHARS, Corpus, escape, shortened

K = 3
SYSTEM = "Find the answer with the tools, then call answer."
PRODUCER = "lakeloop search 1"


class Spec(BaseModel):
    """A search problem's `spec`. `path` is the oracle's way, ending in `answer`; `target` has the answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    corpus: str  # digest
    template: str
    target: str
    accepted: list[str]
    path: list[tuple[str, dict[str, str]]]

    @property
    def expert(self) -> list[ToolCall]:
        return [ToolCall(name, arguments) for name, arguments in self.path]


def _tool(name: str, description: str, parameter: str) -> Mapping[str, Any]:
    schema = {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


PARAMETER = {"search": "query", "open": "title", "answer": "text"}
TOOLS = (
    _tool("search", "Search passages.", "query"),
    _tool("open", "Read a passage.", "title"),
    _tool("answer", "Give the answer.", "text"),
)


class World:
    """The episode's state, without input or output: question writing checks its problems on this same code."""

    def __init__(self, spec: Spec, corpus: Corpus) -> None:
        self.spec = spec
        self.corpus = corpus
        self.queries: list[str] = []
        self.opened: list[str] = []
        self.seen: set[str] = set()
        self.given: str | None = None

    def call(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        if name not in PARAMETER:
            return Observation(f"No tool {shortened(escape(name), 20)}. Use search, open or answer.", is_error=True)
        parameter = PARAMETER[name]
        value = arguments.get(parameter)
        if not isinstance(value, str) or set(arguments) != {parameter}:
            return Observation(f'{name} takes {{"{parameter}": text}}.', is_error=True)
        act = {"search": self._search, "open": self._open, "answer": self._answer}
        return act[name](value)

    def _search(self, query: str) -> Observation:
        self.queries.append(query)
        found = self.corpus.search(query, K)
        self.seen.update(passage.title for passage in found)
        if not found:
            return Observation("Nothing found.")
        lines = (f"{escape(p.title)}: {escape(shortened(p.text, SNIPPET_CHARS))}" for p in found)
        return Observation("\n".join(f"{rank}. {line}" for rank, line in enumerate(lines, start=1)))

    def _open(self, title: str) -> Observation:
        passage = self.corpus.find(title)
        if passage is None:
            near = "; ".join(escape(p.title) for p in self.corpus.search(title, 2)) or "none"
            return Observation(f"No such title. Nearest: {near}", is_error=True)
        self.opened.append(passage.title)
        self.seen.add(passage.title)
        return Observation(str(passage))

    def _answer(self, text: str) -> Observation:
        self.given = text.strip()
        return Observation("Answer taken.", done=True)

    def facts(self) -> list[Fact]:
        """The answer against the accepted forms, and how it was looked for."""
        answer = {
            "given": self.given,
            "accepted": self.spec.accepted,
            "match": match(self.given, self.spec.accepted),
        }
        retrieval = {
            "queries": self.queries,
            "opened": self.opened,
            "hit": self.spec.target in self.seen,
            "corpus": self.corpus.digest,
            "k": K,
            "engine": ENGINE,
        }
        return [Fact("answer", answer, PRODUCER), Fact("retrieval", retrieval, PRODUCER)]


def solved(facts: Sequence[Fact]) -> bool:
    """Whether the answer matched."""
    return any(fact.name == "answer" and fact.value["match"] for fact in facts)


def read_spec(problem: Problem) -> Spec:
    """The problem's spec; EnvironmentFailure where it is not one of a search problem."""
    try:
        return Spec.model_validate(json.loads(problem.spec))
    except (ValueError, ValidationError) as error:
        raise EnvironmentFailure(f"{problem.problem_id}: the spec is not a search problem's: {error}") from error


class SearchEnvironment:
    """`base.Environment` around a World. No code of the model runs, so there is no box."""

    backend_name = "none"
    tools: Sequence[Mapping[str, Any]] = TOOLS

    def __init__(self, problem: Problem, corpus: Corpus) -> None:
        spec = read_spec(problem)
        if spec.corpus != corpus.digest:
            raise EnvironmentFailure(
                f"{problem.problem_id} was made for corpus {spec.corpus[:12]}, here is {corpus.digest[:12]}: "
                "build the problems again"
            )
        self.world = World(spec, corpus)
        self._prompt = problem.prompt

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": self._prompt}]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        return self.world.call(name, arguments)

    async def grade(self) -> Sequence[Fact]:
        return self.world.facts()

    async def close(self) -> None:
        """Nothing is held."""
