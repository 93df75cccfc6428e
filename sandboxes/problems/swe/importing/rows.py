"""Rows out of a file, with their line numbers: JSON lines, a JSON array, or Parquet."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.lib
import pyarrow.parquet

from sandboxes.problems.swe.importing.candidate import Unusable

BATCH = 256


def read(path: Path) -> Iterator[tuple[int, dict[str, Any] | Unusable]]:
    """(line or row number from 1, the row or what is wrong with it). Unusable where the file as a whole cannot be read."""
    if not path.is_file():
        raise Unusable(f"there is no file {path}")
    match path.suffix:
        case ".jsonl" | ".ndjson":
            yield from _lines(path)
        case ".json":
            yield from _array(path)
        case ".parquet":
            yield from _parquet(path)
        case other:
            raise Unusable(
                f"{path.name} ends in {other or 'nothing'}: rows are read from .jsonl, .json (an array) and .parquet"
            )


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any] | Unusable]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, _row(line)


def _row(line: bytes) -> dict[str, Any] | Unusable:
    try:
        row = json.loads(line)
    except ValueError as error:
        return Unusable(f"not JSON: {error}")
    return row if isinstance(row, dict) else Unusable("not a JSON object")


def _array(path: Path) -> Iterator[tuple[int, dict[str, Any] | Unusable]]:
    try:
        rows = json.loads(path.read_bytes())
    except ValueError as error:
        raise Unusable(f"{path.name} is not JSON: {error}") from error
    if not isinstance(rows, list):
        raise Unusable(f"{path.name} is not a JSON array: write one object per line into a .jsonl file instead")
    for number, row in enumerate(rows, start=1):
        yield number, row if isinstance(row, dict) else Unusable("not a JSON object")


def _parquet(path: Path) -> Iterator[tuple[int, dict[str, Any] | Unusable]]:
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except (pyarrow.lib.ArrowException, OSError) as error:
        raise Unusable(f"{path.name} is no Parquet file: {error}") from error
    number = 0
    for batch in file.iter_batches(BATCH):
        for row in batch.to_pylist():
            number += 1
            yield number, row
