"""Model versions by name and number, as people write them: tiny@7."""

import re
from typing import Any

from lakehouse.query import Connection
from lakehouse.records import ModelVersion, TrainingSet

Row = dict[str, Any]
_VERSION = re.compile(r"(.+)@(\d+)")


class UnknownVersion(LookupError):
    """The lake has no such model version."""


def version(connection: Connection, text: str) -> ModelVersion:
    """The version that `name@number` names. UnknownVersion says which there are."""
    found = _VERSION.fullmatch(text)
    rows = (
        records(connection, "from model_versions where name = $1 and version = $2", [found[1], int(found[2])])
        if found
        else []
    )
    if not rows:
        there = records(
            connection, "select name, max(version) as newest from model_versions group by name order by name"
        )
        known = ", ".join(f"{one['name']}@1 to {one['name']}@{one['newest']}" for one in there) or "none at all"
        raise UnknownVersion(f"no model version {text!r}: it is written NAME@NUMBER, and the lake has {known}")
    return ModelVersion(**rows[0])


def training_set(connection: Connection, training_set_id: str | None) -> TrainingSet | None:
    """The set of this id; None for None, and for one that is not there any more."""
    rows = records(connection, "from training_sets where training_set_id = $1", [training_set_id])
    return TrainingSet(**rows[0]) if rows else None


def records(connection: Connection, sql: str, values: list[Any] | None = None) -> list[Row]:
    """The rows of a query."""
    found: list[Row] = connection.execute(sql, values or []).pl().to_dicts()
    return found
