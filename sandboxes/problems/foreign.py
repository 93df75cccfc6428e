"""Problems that others made: on what terms they are taken in, and how a file of rows is read."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyarrow import ArrowException
from pydantic import BaseModel, ConfigDict, Field

from lakehouse.records import Split


class BadRow(ValueError):
    """A row that is no problem. The text says which and why."""


class Terms(BaseModel):
    """What a collection's own files do not say, or say elsewhere."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")  # of the collection; becomes part of the problems' ids
    split: Split
    licence: str = Field(min_length=1)
    allowed_uses: tuple[str, ...]  # must contain "training" to be trained on
    image: str | None = None  # of the boxes, where the collection needs one of its own
    corpus: str | None = None  # what is searched, where rows carry no texts: a corpus by name, or a file of passages
    skip_bad: bool = False  # leave rows out that are no problems, instead of refusing the file


@dataclass(frozen=True)
class Row:
    """A row and its number: the line of a .jsonl file, else the row, both from 1. Without a value, `wrong` says why."""

    number: int
    value: dict[str, Any] | None
    wrong: str = ""


def rows(path: Path) -> Iterator[Row]:
    """The rows of a .json (an array), .jsonl or .parquet file, in order, the bad ones among them. BadRow where the file is
    none of these, or not readable as such.
    """
    readers = {".parquet": _parquet, ".json": _array, ".jsonl": _lines, ".ndjson": _lines}
    if path.suffix not in readers:
        raise BadRow(f"{path.name}: rows are read from .json, .jsonl and .parquet files")
    if not path.is_file():
        raise BadRow(f"{path}: there is no such file")
    return readers[path.suffix](path)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, all good. BadRow names the first that is not."""
    found = []
    for row in rows(path):
        if row.value is None:
            raise BadRow(f"{path.name}, row {row.number} cannot be read: {row.wrong}")
        found.append(row.value)
    return found


def _lines(path: Path) -> Iterator[Row]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield _row(number, json.loads(line))
            except (ValueError, RecursionError) as error:
                yield Row(number, None, f"not JSON: {error}")


def _array(path: Path) -> Iterator[Row]:
    try:
        values = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise BadRow(f"{path.name} cannot be read: {error}; rows one a line are a .jsonl file") from error
    if not isinstance(values, list):
        raise BadRow(f"{path.name} holds no array of rows")
    yield from (_row(number, value) for number, value in enumerate(values, start=1))


def _parquet(path: Path) -> Iterator[Row]:
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=256):
                for value in batch.to_pylist():
                    number += 1
                    yield Row(number, value)
    except ArrowException as error:
        raise BadRow(f"{path.name} cannot be read: {error}") from error


def _row(number: int, value: Any) -> Row:
    return (
        Row(number, value) if isinstance(value, dict) else Row(number, None, f"{type(value).__name__}, not an object")
    )


def texts(row: dict[str, Any], names: Iterable[str], where: str) -> list[str]:
    """These fields of a row, which must be texts with something in them. BadRow says which is not."""
    for name in names:
        if not isinstance(row.get(name), str) or not row[name].strip():
            raise BadRow(f"{where}: {name!r} must be a text, and this row has {sorted(row)}")
    return [row[name] for name in names]
