"""Problems that others made: on what terms they are taken in, and how a file of rows is read."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

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


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a .jsonl or .parquet file. BadRow where it is neither, or not readable as such."""
    import polars as pl  # noqa: PLC0415 - only an import of rows needs it

    if path.suffix not in (".parquet", ".jsonl", ".ndjson"):
        raise BadRow(f"{path.name}: rows are read from .jsonl and .parquet files")
    if not path.is_file():
        raise BadRow(f"{path}: there is no such file")
    try:
        table = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_ndjson(path, infer_schema_length=None)
    except pl.exceptions.PolarsError as error:
        raise BadRow(f"{path.name} cannot be read: {error}") from error
    return table.to_dicts()


def texts(row: dict[str, Any], names: Iterable[str], where: str) -> list[str]:
    """These fields of a row, which must be texts with something in them. BadRow says which is not."""
    for name in names:
        if not isinstance(row.get(name), str) or not row[name].strip():
            raise BadRow(f"{where}: {name!r} must be a text, and this row has {sorted(row)}")
    return [row[name] for name in names]
