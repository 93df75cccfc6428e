"""What a role sees of a table: columns that it may not see are NULL in every view of its connection."""

from collections.abc import Mapping

import pyarrow as pa

from lakehouse.schema import Table, duckdb_type

HIDDEN: Mapping[str, frozenset[str]] = {
    "operator": frozenset(),
    "analyst": frozenset({"content"}),
}


class UnknownRole(LookupError):
    """No role has this name."""


def known(role: str | None) -> str | None:
    """The role, if there is one of this name."""
    if role is not None and role not in HIDDEN:
        raise UnknownRole(f"no role {role!r}; there are {', '.join(HIDDEN)}")
    return role


def shown(role: str | None, table: Table, column: pa.Field) -> str:
    """A column as the role sees it, in SQL. None sees everything."""
    if role is not None and table.column(column.name).sensitivity in HIDDEN[role]:
        return f"null::{duckdb_type(column.type)}"
    return str(column.name)
