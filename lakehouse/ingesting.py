"""Which of an outside application's sessions the lake does not have, and what it knows of their problems."""

from collections.abc import Mapping, Sequence

import polars as pl

from lakehouse.query import connect
from lakehouse.records import Problem


def missing(lake: str | None, tasks: Mapping[str, str]) -> set[str]:
    """Of these episode ids, each with its session's task id, those that have not landed.

    A session whose task is a dispatched episode belongs to a flow, which lands it itself.
    """
    wanted = pl.DataFrame(
        {"episode_id": list(tasks), "task_id": list(tasks.values())}, schema=["episode_id", "task_id"]
    )
    with connect(lake) as connection:
        connection.register("wanted", wanted.cast(pl.String).to_arrow())
        rows = connection.execute(
            """
            select episode_id
            from wanted
            anti join bronze.episodes as landed using (episode_id)
            anti join bronze.dispatches as own on own.episode_id = wanted.task_id
            """
        ).fetchall()
    return {episode_id for (episode_id,) in rows}


def problems(lake: str | None, problem_ids: Sequence[str]) -> dict[str, Problem]:
    """The newest edition of each of these problems that the lake has."""
    with connect(lake) as connection:
        rows = connection.execute(
            "select * from problems where list_contains($1, problem_id)", [list(problem_ids)]
        ).pl()
    return {row["problem_id"]: Problem(**row) for row in rows.to_dicts()}
