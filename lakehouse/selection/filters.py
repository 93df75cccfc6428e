"""Filters: SQL files that say which episodes a selection leaves out and why, put one after another by name.

`grpo+dedup+short` begins with `filters.eligible`, which holds every episode in question, and hands what each filter makes of
it to the next. Ours are in `lakehouse/sql/filters`, a user's own in `<home>/filters`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakehouse.home import home
from lakehouse.query import SQL, Connection, QueryError, Unreadable
from lakehouse.query.relations import header, step

Setting = bool | int | float | str
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_SETTING = re.compile(r"([a-z][a-z0-9_]*)\s*=\s*([^,\s]+)")


class UnknownFilter(LookupError):
    """No filter has this name, or it is only a step of others."""


class InvalidFilter(ValueError):
    """A filter's file cannot be used; the text names the file, what is wrong and what it must be like."""


@dataclass(frozen=True)
class Filter:
    """One file: `keeps` in words, `settings` with their defaults, `sql` over `before` with episode_id and reason."""

    name: str
    keeps: str
    sql: str
    settings: Mapping[str, Setting] = field(default_factory=dict)
    own: bool = False  # a user's


def known(folder: Path | None = None) -> dict[str, Filter]:
    """Every filter by name, ours first. InvalidFilter where a user's file has no `-- keeps:` or the name of one of ours."""
    ours = {found.name: found for path in sorted((SQL / "filters").glob("*.sql")) if (found := _read(path)).keeps}
    for path in sorted((folder or home().filters).glob("*.sql")):
        found = _read(path, own=True)
        if not _NAME.fullmatch(found.name) or (SQL / "filters" / path.name).exists():
            raise InvalidFilter(
                f"{path}: a filter's file is named in lower-case letters, digits and '_', and not like one of Lakeloop's "
                f"own ({', '.join(ours)}): rename it"
            )
        if not found.keeps:
            raise InvalidFilter(f"{path}: begin it with a line `-- keeps: ` and, in words, what the filter keeps")
        ours[found.name] = found
    return ours


def chosen(names: str) -> list[Filter]:
    """The filters of `grpo+dedup`, in that order. UnknownFilter says which there are."""
    there = known()
    unknown = [name for name in names.split("+") if name not in there]
    if unknown:
        raise UnknownFilter(
            f"no filter {unknown[0]!r}: in lakehouse/sql/filters and {home().filters} there are {', '.join(there)}. "
            "Several are put together as grpo+dedup"
        )
    return [there[name] for name in names.split("+")]


def settled(steps: Sequence[Filter], asked: Mapping[str, Setting]) -> dict[str, Setting]:
    """Every setting of these filters: as asked for, else its default. InvalidFilter where none of them has a setting."""
    defaults = {name: value for one in steps for name, value in one.settings.items()}
    for name, value in asked.items():
        if name not in defaults:
            has = ", ".join(f"{key} ({default})" for key, default in defaults.items()) or "none"
            raise InvalidFilter(
                f"no setting {name!r} in the filters {'+'.join(one.name for one in steps)}; they have {has}"
            )
        if isinstance(value, str) is not isinstance(defaults[name], str):
            raise InvalidFilter(f"setting {name!r} is {value!r}, and must be like its default {defaults[name]!r}")
    return defaults | dict(asked)


def apply(connection: Connection, steps: Sequence[Filter], variables: Mapping[str, Any]) -> str:
    """Run the filters; a relation of every episode in question and its reason, NULL where kept, for a FROM clause.

    Where a filter names an episode that was left out before, its reason holds.

    InvalidFilter where a user's SQL does not run or gives no reasons, with DuckDB's words.
    """
    set_variables(connection, variables)
    connection.execute("create or replace temp table eligible as from filters.eligible")
    connection.execute("create or replace temp table reasons_0 as select episode_id, reason from eligible")
    for number, one in enumerate(steps, 1):
        so_far = f"reasons_{number - 1}"
        before = _with_reasons(so_far)
        try:
            connection.execute(
                f"""
                create or replace temp table reasons_{number} as
                select episode_id, coalesce(left_out.reason, so_far.reason) as reason
                from {so_far} as so_far
                left join ({step(one.sql, before)}) as left_out using (episode_id)
                """  # noqa: S608 - SQL made of SQL
            )
        except QueryError as error:
            if not one.own or isinstance(error, Unreadable):
                raise
            raise InvalidFilter(
                f"filter {one.name!r} ({home().filters / one.name}.sql): {error}\nA filter selects episode_id and reason "
                "from `before`, the episodes so far; it goes by the outcome, so `before` has no reward"
            ) from error
    return _with_reasons(f"reasons_{len(steps)}")


def set_variables(connection: Connection, variables: Mapping[str, Any]) -> None:
    """What `getvariable` gives in the SQL of the filters. A value is None, a number, true or false, text, or a list of these."""
    for name, value in variables.items():
        connection.execute(f"set variable {name} = {_literal(value)}")


def _with_reasons(table: str) -> str:
    columns = "eligible.* replace (so_far.reason as reason)"
    return f"(select {columns} from eligible inner join {table} as so_far using (episode_id))"  # noqa: S608 - our own


def _read(path: Path, *, own: bool = False) -> Filter:
    sql = path.read_text(encoding="utf-8")
    about = header(sql)
    settings = {name: _value(path, name, text) for name, text in _SETTING.findall(about.get("settings", ""))}
    return Filter(path.stem, about.get("keeps", ""), sql, settings, own)


def _value(path: Path, name: str, text: str) -> Setting:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, Setting):
        raise InvalidFilter(f'{path}: setting {name} = {text}: a default is a number, true, false or "text"')
    return value


def _literal(value: Any) -> str:
    """A value as SQL text: SET VARIABLE takes no parameters."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return "[" + ", ".join(map(_literal, value)) + "]"
