"""The world of an episode over documents: `search`, paged `open`, `find`, `answer`."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from sandboxes.problems.base import Fact, Observation, ToolCall
from sandboxes.problems.search.answers import AnswerType, exact, f1, match
from sandboxes.problems.search.corpus import escape, shortened
from sandboxes.problems.search.documents.corpus import Corpus, Document
from sandboxes.problems.search.documents.index import ENGINE
from sandboxes.problems.search.documents.text import LINE_CHARS, best_line, holding, terms

K = 5
FOUND = 5  # lines that `find` shows
PRODUCER = "lakeloop search 2"


class Spec(BaseModel):
    """The `spec` of a problem over documents. Of `support`, all titles that must be read, the last has the answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tools: Literal["documents"] = "documents"
    corpus: str  # digest
    corpus_name: str
    template: str
    hops: int
    answer_type: AnswerType
    accepted: list[str]
    support: list[str]
    path: list[tuple[str, dict[str, str | int]]]  # the oracle's way, ending in `answer`

    @property
    def expert(self) -> list[ToolCall]:
        return [ToolCall(name, arguments) for name, arguments in self.path]


def _tool(name: str, description: str, parameter: str, **optional: str) -> Mapping[str, Any]:
    properties = {parameter: {"type": "string"}} | {
        other: {"type": "integer", "minimum": 1, "description": meaning} for other, meaning in optional.items()
    }
    schema = {"type": "object", "properties": properties, "required": [parameter], "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


PARAMETER = {"search": "query", "open": "title", "find": "text", "answer": "text"}
TOOLS = (
    _tool(
        "search", f"Search all documents. Gives the {K} best titles, each with its line nearest to the query.", "query"
    ),
    _tool("open", "Open a document by its title. Long ones have pages.", "title", page="Page number, from 1."),
    _tool("find", "Find the lines of the opened document that hold all these words, on whichever page.", "text"),
    _tool("answer", "Give the answer and end.", "text"),
)


class World:
    """The episode's state, without input or output: question writing checks its problems on this same code."""

    prompt = "search-documents"  # the name of its templates
    tools = TOOLS

    def __init__(self, spec: Spec, corpus: Corpus) -> None:
        self.spec = spec
        self.corpus = corpus
        self.queries: list[str] = []
        self.results: list[list[str]] = []
        self.opened: list[tuple[str, int]] = []  # title and page
        self.given: str | None = None
        self._current: Document | None = None

    def call(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        if name not in PARAMETER:
            return _error(f"No tool {shortened(escape(name), 20)}. Use search, open, find or answer.")
        parameter = PARAMETER[name]
        value, page = arguments.get(parameter), arguments.get("page", 1)
        allowed = {parameter, "page"} if name == "open" else {parameter}
        if not isinstance(value, str) or not set(arguments) <= allowed:
            return _error(f'{name} takes {{"{parameter}": text{", page: number" if name == "open" else ""}}}.')
        if type(page) is not int:
            return _error("page is a whole number, from 1.")
        if name == "open":
            return self._open(value, page)
        act = {"search": self._search, "find": self._find, "answer": self._answer}
        return act[name](value)

    def _search(self, query: str) -> Observation:
        found = self.corpus.search(query, K)
        self.queries.append(query)
        self.results.append([document.title for document in found])
        if not found:
            return Observation("Nothing found.")
        asked = terms(query)
        nearest = (best_line(d.text, set(asked).difference(terms(d.title)) or asked) for d in found)
        lines = (
            f"{rank}. {d.title}: {_line(line)}" for rank, (d, line) in enumerate(zip(found, nearest, strict=True), 1)
        )
        return Observation(escape("\n".join(lines)))

    def _open(self, title: str, page: int) -> Observation:
        document = self.corpus.find(title)
        if document is None:
            near = "; ".join(d.title for d in self.corpus.search(title, 2)) or "none"
            return _error(escape(f"No such title. Nearest: {near}"))
        total = len(document.pages)
        if not 1 <= page <= total:
            return _error(escape(f"{document.title} has pages 1 to {total}."))
        self._current = document
        self.opened.append((document.title, page))
        return Observation(escape(f"{document.title} (page {page} of {total})\n{document.pages[page - 1]}"))

    def _find(self, text: str) -> Observation:
        if self._current is None:
            return _error("Open a document first.")
        wanted = terms(text)
        hits = [
            f"Page {n}: {_line(line)}"
            for n, page in enumerate(self._current.pages, 1)
            for line in holding(page, wanted)
        ]
        if not hits:
            return Observation(escape(f"{self._current.title} has no line with these words."))
        more = [f"{len(hits) - FOUND} more lines."] if len(hits) > FOUND else []
        return Observation(escape("\n".join([*hits[:FOUND], *more])))

    def _answer(self, text: str) -> Observation:
        self.given = text.strip()
        return Observation("Answer taken.", done=True)

    def hear(self, text: str) -> None:
        """What the policy says last in plain text is its answer, unless it gave one."""
        if self.given is None:
            self.given = text.strip() or None

    def facts(self) -> list[Fact]:
        """The answer against the accepted forms, and how it was looked for."""
        read = list(dict.fromkeys(title for title, _ in self.opened))
        listed = dict.fromkeys(title for titles in self.results for title in titles)
        answer = {
            "given": self.given,
            "accepted": self.spec.accepted,
            "type": self.spec.answer_type,
            "match": match(self.given, self.spec.accepted, self.spec.answer_type),
            "exact": exact(self.given, self.spec.accepted),
            "f1": f1(self.given, self.spec.accepted),
        }
        retrieval = {
            "queries": self.queries,
            "results": self.results,
            "opened": [title for title, _ in self.opened],
            "pages": [page for _, page in self.opened],
            "support": self.spec.support,
            "support_opened": [title for title in self.spec.support if title in read],
            "support_listed": [title for title in self.spec.support if title in listed],
            "hit": bool(self.spec.support) and self.spec.support[-1] in {*read, *listed},
            "corpus": self.corpus.digest,
            "k": K,
            "engine": ENGINE,
        }
        return [Fact("answer", answer, PRODUCER), Fact("retrieval", retrieval, PRODUCER)]


def _error(text: str) -> Observation:
    return Observation(text, is_error=True)


def _line(text: str) -> str:
    return shortened(text, LINE_CHARS)
