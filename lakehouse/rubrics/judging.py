# ruff: noqa: S608 - rubrics and selections are SQL by contract, and the connection only reads
"""Judgements of a rubric over the evidence there is, checked before anybody writes or compares them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from lakehouse.query import Connection, QueryError, Unreadable
from lakehouse.rubrics.files import Asked, Rubric, RubricError

COLUMNS = {
    "episode_id": "varchar",
    "status": "varchar",
    "outcome": "double",
    "reward": "double",
    "components": "varchar",
}

# What no judgement may be, as SQL over `judgement` and the `due` episode it is of, and in words.
_RULES = {
    "status not in ('scored', 'no_evidence', 'not_trainable') or status is null": (
        "a status is scored, no_evidence or not_trainable"
    ),
    "status = 'scored' and not trainable": (
        "an episode that ended by no fault of the policy is not_trainable, never scored: look at episodes.status"
    ),
    "status = 'scored' and (reward is null or outcome is null)": (
        "a scored episode has an outcome and a reward; NULL comes of missing evidence or of // and % by zero"
    ),
    "status <> 'scored' and (reward is not null or outcome is not null)": (
        "an episode that is not scored has neither outcome nor reward"
    ),
    "not coalesce(isfinite(reward) and isfinite(outcome), true)": (
        "outcome and reward are finite; a division by zero gives infinity or NaN: guard it with nullif"
    ),
    "outcome not between 0 and 1": "an outcome is between 0 (not solved) and 1 (solved); the rest belongs in the reward",
    "coalesce(json_type(try_cast(components as json)), '') <> 'OBJECT'": "components are a JSON object",
}


class SelectionError(ValueError):
    """The SQL that says which episodes are meant is wrong."""


@dataclass(frozen=True)
class Coverage:
    """Episodes a rubric was asked to judge. `due` = scored + no_evidence + not_trainable + missing."""

    due: int
    scored: int
    no_evidence: int
    not_trainable: int
    missing: int  # the rubric gave no row
    trainable: int  # of `due`, those that ended by the policy's own doing

    @property
    def unjudged(self) -> float:
        """Share of the trainable episodes that got no reward; 0 where there is none."""
        return (self.trainable - self.scored) / self.trainable if self.trainable else 0.0


def judge(
    connection: Connection, asked: Asked, *, where: str = "true", into: str = "judged", empty_allowed: bool = False
) -> Coverage:
    """Judge the episodes of the rubric's kinds that `where` names, into temporary tables `<into>` and `<into>_due`.

    `<into>` has the columns of COLUMNS, one row per judged episode. `where` is SQL over the columns of `episodes`.
    RubricError where the rubric cannot be run, breaks a rule, or (unless `empty_allowed`) has no row for any of the episodes.
    """
    rubric = asked.rubric
    _due(connection, rubric, where, into)
    _one_statement(rubric, rubric.sql, rubric.parameters)
    try:
        connection.execute(
            f"create or replace temp table {into}_raw as select judgement.* from (\n{rubric.sql}\n) as judgement "
            f"semi join {into}_due using (episode_id)",
            dict(asked.parameters),
        )
        _shape(connection, rubric, into)
    except Unreadable:
        raise
    except QueryError as error:
        raise rubric.error(f"{error}\nNothing was written") from error
    _keep_the_rules(connection, rubric, into)
    counts = dict(connection.execute(f"select status, count(*) from {into} group by status").fetchall())
    (due, trainable) = _row(connection, f"select count(*), count(*) filter (where trainable) from {into}_due")
    judged = sum(counts.values())
    if due and not judged and not empty_allowed:
        raise rubric.error(
            f"it has no row for any of the {due} episodes it was to judge, so it would label nothing. "
            "Correct its FROM and WHERE, or its line `-- kinds: ...`"
        )
    return Coverage(
        due=due,
        scored=counts.get("scored", 0),
        no_evidence=counts.get("no_evidence", 0),
        not_trainable=counts.get("not_trainable", 0),
        missing=due - judged,
        trainable=trainable,
    )


def _due(connection: Connection, rubric: Rubric, where: str, into: str) -> None:
    """The episodes to judge, into `<into>_due`."""
    sql = f"""
        select episode_id, status in ('ok', 'truncated', 'model_error') as trainable
        from episodes
        where (
            {where}
        ) and (len($kinds::varchar[]) = 0 or list_contains($kinds::varchar[], problem_kind))
    """
    try:
        duckdb.extract_statements(f"select 1 where {where}")  # on its own: what closes our bracket is no condition
        connection.execute(f"create or replace temp table {into}_due as {sql}", {"kinds": list(rubric.kinds)})
    except Unreadable:
        raise
    except (QueryError, duckdb.Error) as error:
        raise SelectionError(f"{where!r} is not a condition over the columns of `episodes`: {error}") from error


def _one_statement(rubric: Rubric, sql: str, parameters: Mapping[str, Any]) -> None:
    """RubricError unless the file is one SELECT that uses the parameters its header names, and no other."""
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise rubric.error(error) from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise rubric.error("a rubric is one SELECT statement")
    used = set(statements[0].named_parameters)
    if used != set(parameters):
        lacking = ", ".join(sorted(used ^ set(parameters)))
        raise rubric.error(
            f"its header and its SQL differ in parameters: {lacking}; `-- parameter NAME: DEFAULT` and $NAME"
        )


def _shape(connection: Connection, rubric: Rubric, into: str) -> None:
    """`<into>` with the columns a judgement has, and their types."""
    there = connection.sql(f"from {into}_raw").columns
    if set(there) != set(COLUMNS):
        lacking, extra = (", ".join(sorted(names)) for names in (set(COLUMNS) - set(there), set(there) - set(COLUMNS)))
        told = [f"lacks {lacking}"] * bool(lacking) + [f"has also {extra}"] * bool(extra)
        raise rubric.error(f"it gives the columns {', '.join(COLUMNS)}; this one {' and '.join(told)}")
    columns = ", ".join(f"{name}::{kind} as {name}" for name, kind in COLUMNS.items())
    connection.execute(f"create or replace temp table {into} as select {columns} from {into}_raw")


def _keep_the_rules(connection: Connection, rubric: Rubric, into: str) -> None:
    twice = connection.execute(
        f"select episode_id, count(*) from {into} group by episode_id having count(*) > 1 order by 1"
    ).fetchall()
    if twice:
        name, rows = twice[0]
        raise _broken(rubric, f"one row per episode; it gives {rows} for {name}", len(twice))
    cases = " ".join(f"when {condition} then {number}" for number, condition in enumerate(_RULES))
    broken = connection.execute(
        f"""
        with judged as (
            select judgement.*, case {cases} end as rule
            from {into} as judgement
            inner join {into}_due using (episode_id)
        )

        select rule, count(*) as episodes, arg_min(judged, episode_id) as example
        from judged
        where rule is not null
        group by rule
        order by rule
        limit 1
        """
    ).pl()
    if broken.height:
        rule, episodes, row = broken.row(0)
        told = ", ".join(f"{name}={row[name]!r}" for name in ("status", "outcome", "reward"))
        raise _broken(rubric, f"{list(_RULES.values())[rule]}; {row['episode_id']} has {told}", episodes)


def _broken(rubric: Rubric, law: str, episodes: int) -> RubricError:
    return rubric.error(f"{law} ({episodes} episode{'s' * (episodes > 1)}). Nothing was written")


def _row(connection: Connection, sql: str) -> tuple[Any, ...]:
    row = connection.execute(sql).fetchone()
    assert row is not None
    return row
