"""One search episode. The world here is that of the shipped passages: `search`, `open`, `answer`."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from lakehouse.records import dumps
from sandboxes.problems.base import Fact, Observation, ToolCall
from sandboxes.problems.honey import Honey
from sandboxes.problems.search.answers import exact, f1, match
from sandboxes.problems.search.corpus import ENGINE, SNIPPET_CHARS, Corpus, escape, shortened
from sandboxes.prompts import Prompts

K = 3
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

    @property
    def support(self) -> list[str]:
        """Titles of all passages that must be read, the one with the answer last. A bridge is listed to the oracle, not opened."""
        kind, _, bridge = self.template.partition("/")
        country = self.target.partition(" / ")[0]
        first = [f"{country} / {bridge.capitalize()}"] if kind == "bridge" else []
        return first + [arguments["title"] for name, arguments in self.path if name == "open"]


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

    prompt = "search"  # the name of its templates
    tools: Sequence[Mapping[str, Any]] = TOOLS

    def __init__(self, spec: Spec, corpus: Corpus) -> None:
        self.spec = spec
        self.corpus = corpus
        self.queries: list[str] = []
        self.opened: list[str] = []
        self.results: list[list[str]] = []
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
        self.results.append([passage.title for passage in found])
        self.seen.update(self.results[-1])
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

    def hear(self, text: str) -> None:
        """Plain text is no answer here."""

    def facts(self) -> list[Fact]:
        """The answer against the accepted forms, and how it was looked for."""
        answer = {
            "given": self.given,
            "accepted": self.spec.accepted,
            "match": match(self.given, self.spec.accepted),
            "exact": exact(self.given, self.spec.accepted),
            "f1": f1(self.given, self.spec.accepted),
        }
        listed = {title for titles in self.results for title in titles}
        support = self.spec.support
        retrieval = {
            "queries": self.queries,
            "results": self.results,
            "opened": self.opened,
            "pages": [1] * len(self.opened),  # a passage has one
            "support": support,
            "support_opened": [title for title in support if title in self.opened],
            "support_listed": [title for title in support if title in listed],
            "hit": self.spec.target in self.seen,
            "corpus": self.corpus.digest,
            "k": K,
            "engine": ENGINE,
        }
        return [Fact("answer", answer, PRODUCER), Fact("retrieval", retrieval, PRODUCER)]


def solved(facts: Sequence[Fact]) -> bool:
    """Whether the answer matched."""
    return any(fact.name == "answer" and fact.value["match"] for fact in facts)


class AnyWorld(Protocol):
    """What an episode of any tool set runs on."""

    @property
    def prompt(self) -> str: ...

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]: ...

    def call(self, name: str, arguments: Mapping[str, Any]) -> Observation: ...

    def hear(self, text: str) -> None: ...

    def facts(self) -> Sequence[Fact]: ...


class SearchEnvironment:
    """`base.Environment` around a world. No code of the model runs, so there is no box."""

    backend_name = "none"

    def __init__(self, world: AnyWorld, prompts: Prompts) -> None:
        self.world = world
        self._prompts = prompts
        self._honey = Honey()

    @property
    def tools(self) -> Sequence[Mapping[str, Any]]:
        return self.world.tools

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        return self._prompts.messages(self.world.prompt, self.tools)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        self._honey.said(dumps(arguments))
        return self._honey.passage(name, arguments) or self._honey.listed(
            name, arguments, self.world.call(name, arguments)
        )

    def hear(self, text: str) -> None:
        self._honey.said(text)
        self.world.hear(text)

    async def grade(self) -> Sequence[Fact]:
        return [*self.world.facts(), *self._honey.facts]

    async def close(self) -> None:
        """Nothing is held."""
