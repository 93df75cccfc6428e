"""Named queries: the files of `sql/queries`, each the answer to a question that people ask.

A query's parameters are variables with a default, which its header describes: `-- variables: last (versions shown; 10)`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from lakehouse.query.connection import Connection
from lakehouse.query.errors import QueryError
from lakehouse.query.relations import Relation, relations

_VARIABLE = re.compile(r"(\w+) \(([^;()]+); ([^()]*)\)")


class UnknownQuery(LookupError):
    """No query has this name, or it has no parameter of this name."""


@dataclass(frozen=True)
class Parameter:
    """One variable of a query."""

    name: str
    means: str
    default: str


@dataclass(frozen=True)
class NamedQuery:
    """One file of `sql/queries`."""

    name: str
    question: str
    parameters: tuple[Parameter, ...]


def queries() -> list[NamedQuery]:
    """Every named query, by name."""
    files = (known for known in relations() if known.name.startswith("queries."))
    return sorted(map(_read, files), key=lambda one: one.name)


def run_named(connection: Connection, name: str, values: Mapping[str, str] | None = None) -> pl.DataFrame:
    """The rows of a named query. UnknownQuery names those there are, or its parameters."""
    found = {one.name: one for one in queries()}
    if name not in found:
        raise UnknownQuery(f"no query {name!r}; there are {', '.join(found)}")
    known = {parameter.name for parameter in found[name].parameters}
    for key, value in (values or {}).items():
        if key not in known:
            there = ", ".join(sorted(known)) or "none"
            raise UnknownQuery(f"query {name!r} has no parameter {key!r}; there is {there}")
        quoted = value.replace("'", "''")
        connection.execute(f"set variable {key} = '{quoted}'")
    try:
        return connection.sql(f"from queries.{name}").pl()
    finally:
        for key in values or {}:
            connection.execute(f"reset variable {key}")


def _read(file: Relation) -> NamedQuery:
    try:
        question = file.header["question"]
    except KeyError:
        raise QueryError(f"{file.name}: the file has no line `-- question:`") from None
    parameters = tuple(Parameter(*found) for found in _VARIABLE.findall(file.header.get("variables", "")))
    return NamedQuery(file.name.removeprefix("queries."), question, parameters)
