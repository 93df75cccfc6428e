"""What a role sees of a table, column by column, in every view of its connection.

By the sensitivity that `schema.py` gives a column: as it is, as a digest that is the same in all tables and connections of
one home folder, or as NULL. This keeps an honest reader from seeing what is not theirs to see. It is no wall: DuckDB runs in
the reader's own process, and whoever may read the lake's files can read them without this. See docs/governance.md.
"""

from collections.abc import Mapping
from typing import Literal

import pyarrow as pa

from lakehouse.keys import keyed
from lakehouse.schema import Table, duckdb_type

Treatment = Literal["digest", "null"]

# What each role does not see as it is, by sensitivity.
ROLES: Mapping[str, Mapping[str, Treatment]] = {
    "operator": {},
    "reviewer": {"person": "null"},  # judges what was said and done, not who
    "analyst": {"content": "null", "person": "null"},  # counts and compares, and can name an episode to others
    "researcher": {"content": "null", "person": "null", "pseudonym": "digest"},  # the same, without naming any
}


class UnknownRole(LookupError):
    """No role has this name."""


def known(role: str | None) -> str | None:
    """The role, if there is one of this name."""
    if role is not None and role not in ROLES:
        raise UnknownRole(f"no role {role!r}; there are {', '.join(ROLES)}")
    return role


def shown(role: str | None, table: Table, column: pa.Field) -> str:
    """A column as the role sees it, in SQL. None sees everything."""
    treatment = ROLES[role].get(table.column(column.name).sensitivity) if role is not None else None
    if treatment is None:
        return str(column.name)
    if treatment == "digest" and column.type == pa.string():
        return _digest(column.name)
    if treatment == "digest" and column.type == pa.list_(pa.string()):
        return f"list_transform({column.name}, lambda one: {_digest('one')})"
    return f"null::{duckdb_type(column.type)}"


def _digest(expression: str) -> str:
    """NULL stays NULL."""
    return f"'x-' || substr(sha256('{keyed('role', 'pseudonym')}' || {expression}), 1, 20)"
