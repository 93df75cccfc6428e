"""Corpora by name and digest: those that ship with us, and those that were imported, kept under the home folder."""

import gzip
import json
import os
import tempfile
import threading
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from lakehouse.home import home
from sandboxes.problems.search.documents import shipped
from sandboxes.problems.search.documents.corpus import Corpus, Document

_loading = threading.Lock()


class NoSuchCorpus(LookupError):
    """No corpus has this name."""


def find(name: str, digest: str) -> Corpus | None:
    """A corpus for an episode, ready to be searched: the shipped one of this name, else the stored one with this digest, else
    None. Of many episodes that begin at once, one loads it and the others wait.
    """
    with _loading:
        if name in shipped.SIZES:
            found = shipped.corpus(name)
        elif (path := _file(name, digest)).is_file():
            found = _load(path)
        else:
            return None
        found.prepare()
        return found


def named(name: str) -> Corpus:
    """A shipped corpus, or the newest of this name that was imported here. NoSuchCorpus names those there are."""
    if name in shipped.SIZES:
        return shipped.corpus(name)
    held = sorted(_folder().glob("*.jsonl.gz"), key=lambda path: path.stat().st_mtime)
    for path in reversed(held):
        if path.name.rpartition("-")[0] == name:
            return _load(path)
    names = sorted({*shipped.SIZES, *(path.name.rpartition("-")[0] for path in held)})
    raise NoSuchCorpus(
        f"no corpus is called {name!r}; there are {', '.join(names)}, and files of passages (.jsonl, .json, .parquet)"
    )


def save(corpus: Corpus) -> Path:
    """Keep a corpus under the home folder, whole or not at all. The same content is kept once."""
    path = _file(corpus.name, corpus.digest)
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as raw, gzip.open(raw, "wt", compresslevel=6, encoding="utf-8") as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in _lines(corpus))
        Path(beside).replace(path)
    except BaseException:  # also when interrupted: nothing half made stays
        Path(beside).unlink(missing_ok=True)
        raise
    return path


def _lines(corpus: Corpus) -> Iterator[object]:
    yield {"name": corpus.name, "source": corpus.source, "licence": corpus.licence}
    yield from ([document.title, document.text] for document in corpus.documents)


@lru_cache(maxsize=4)
def _load(path: Path) -> Corpus:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        head = json.loads(next(file))
        return Corpus((Document(*json.loads(line)) for line in file), **head)


def _folder() -> Path:
    return home().root / "corpora"


def _file(name: str, digest: str) -> Path:
    return _folder() / f"{name}-{digest[:32]}.jsonl.gz"
