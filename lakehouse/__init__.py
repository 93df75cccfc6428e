"""The lake: record types, tables, the only writer, queries. `lakehouse.connect()` is where a notebook starts."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakehouse.query import connect

__all__ = ["connect"]


def __getattr__(name: str) -> Any:
    # Loaded on first use: a sandbox that needs only the record types does not pay for DuckDB.
    if name in __all__:
        return getattr(import_module("lakehouse.query"), name)
    raise AttributeError(f"module 'lakehouse' has no attribute {name!r}")
