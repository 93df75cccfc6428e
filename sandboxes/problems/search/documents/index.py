"""BM25 over the terms of documents, in a tantivy index that is built once per machine and mapped by every process.

Repeatable: one thread writes one order of documents, a query is a set of terms and never a query language, and equal
scores come in the order of document ids.
"""

import shutil
import tempfile
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

import tantivy

from lakehouse.home import home
from lakehouse.locks import locked
from sandboxes.problems.base import EnvironmentFailure

ENGINE = f"tantivy {version('tantivy')}"
LAYOUT = 1  # raise it when what is indexed, or how, changes
HEAP_BYTES = 64 * 2**20
BUILDING_S = 1800.0  # for another process that builds the same index
MARGIN = 8  # hits beyond k that are looked at for a tie


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("terms", tokenizer_name="whitespace", index_option="freq")
    builder.add_unsigned_field("id", stored=False, indexed=False, fast=True)
    return builder.build()


class Index:
    """An index that was opened."""

    def __init__(self, folder: Path) -> None:
        self._schema = _schema()
        self._searcher = tantivy.Index(self._schema, path=str(folder)).searcher()
        self.size: int = self._searcher.num_docs

    def search(self, wanted: Sequence[str], k: int) -> list[int]:
        """Ids of the k best documents that hold any of the terms."""
        if not wanted or k < 1:
            return []
        terms = [
            (tantivy.Occur.Should, tantivy.Query.term_query(self._schema, "terms", term, "freq"))
            for term in dict.fromkeys(wanted)
        ]
        query, limit = tantivy.Query.boolean_query(terms), k + MARGIN
        while True:
            hits = self._searcher.search(query, limit=limit, count=False).hits
            if len(hits) < limit or hits[-1][0] < hits[k - 1][0]:
                break  # all that tie with the k-th are among them
            limit *= 4
        ids = self._searcher.fast_field_values("id", [address for _, address in hits])
        ranked = sorted((-score, int(identity or 0)) for (score, _), identity in zip(hits, ids, strict=True))
        return [identity for _, identity in ranked[:k]]


def open_index(digest: str, documents: Iterable[Sequence[str]]) -> Index:
    """The index of the corpus with this digest, built from its documents' terms where this machine has none yet.

    Several processes may ask at once: one builds, in a folder beside, and the finished folder takes its name at one stroke.
    """
    folder = home().cache / "search" / f"{digest[:32]}-{ENGINE.replace(' ', '-')}-{LAYOUT}"
    if not folder.is_dir():
        with locked(folder.with_suffix(".lock"), deadline_s=BUILDING_S, busy=_busy):
            if not folder.is_dir():
                _build(folder, documents)
    return Index(folder)


def _busy(holder: str) -> EnvironmentFailure:
    return EnvironmentFailure(
        f"process {holder} has been building a search index for {BUILDING_S:.0f} s: end it, then retry"
    )


def _build(folder: Path, documents: Iterable[Sequence[str]]) -> None:
    beside = Path(tempfile.mkdtemp(prefix=folder.name + ".", dir=folder.parent))
    try:
        writer = tantivy.Index(_schema(), path=str(beside)).writer(HEAP_BYTES, num_threads=1)
        try:
            for identity, terms in enumerate(documents):
                document = tantivy.Document(terms=" ".join(terms))
                document.add_unsigned("id", identity)
                writer.add_document(document)
            writer.commit()
        finally:
            writer.wait_merging_threads()  # its threads write into the folder until here
        beside.rename(folder)
    except BaseException:  # also when interrupted: nothing half made stays
        shutil.rmtree(beside, ignore_errors=True)
        raise
