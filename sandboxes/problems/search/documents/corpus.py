"""A corpus of documents with titles, over which episodes search."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from lakehouse.records import digest, dumps
from sandboxes.problems.search.documents.index import Index, open_index
from sandboxes.problems.search.documents.text import pages, terms

QUERY_CHARS = 400


@dataclass(frozen=True)
class Document:
    """A text that is read page by page. Its title is its id."""

    title: str
    text: str

    @cached_property
    def pages(self) -> Sequence[str]:
        return pages(self.text)


class Corpus:
    """Documents in the order of their ids, an index over titles and texts, and a digest that names the content."""

    def __init__(self, documents: Iterable[Document], *, name: str, source: str, licence: str) -> None:
        self.name = name
        self.source = source
        self.licence = licence
        self.documents = list(documents)
        self._exact = {document.title: document for document in self.documents}
        if not self.documents:
            raise ValueError(f"corpus {name} is empty: it needs at least one document")
        if len(self._exact) < len(self.documents):
            raise ValueError(f"corpus {name} has several documents of one title: a title is a document's id")
        self._loose: dict[tuple[str, ...], Document | None] = {}
        for document in self.documents:
            key = tuple(terms(document.title))
            self._loose[key] = None if key in self._loose else document  # of two that read alike, neither

    @classmethod
    def of_fields(cls, entities: Mapping[str, Mapping[str, str]], *, name: str, source: str, licence: str) -> Self:
        """A document per entity, a line "Field: text" per field."""
        texts = {
            title: "\n".join(f"{field}: {text}" for field, text in fields.items()) for title, fields in entities.items()
        }
        return cls((Document(*item) for item in texts.items()), name=name, source=source, licence=licence)

    @cached_property
    def digest(self) -> str:
        return digest(dumps([[document.title, document.text] for document in self.documents]))

    @cached_property
    def _index(self) -> Index:
        # Titles count twice: the document about a package goes before those that depend on it.
        return open_index(self.digest, (terms(f"{d.title} {d.title} {d.text}") for d in self.documents))

    def prepare(self) -> None:
        """Open the index now, and build it first where this machine has none: no search shall wait for it."""
        _ = self._index

    def search(self, query: str, k: int) -> list[Document]:
        """The k best documents that share a term with the query, best first, ties in the order of ids."""
        return [self.documents[i] for i in self._index.search(terms(query[:QUERY_CHARS]), k)]

    def find(self, title: str) -> Document | None:
        """The document with this title; case, accents and punctuation do not count where that names one alone."""
        return self._exact.get(title) or self._loose.get(tuple(terms(title)))
