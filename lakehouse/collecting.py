"""What a run has done and what is left: asked of the lake and never of a process's memory."""

import json
from collections.abc import Mapping

from lakehouse.query import connect
from lakehouse.records import Dispatch


def remaining(lake: str | None, run_id: str) -> list[Dispatch]:
    """Dispatches of a run whose episode has neither landed nor been refused, in the order of problem and sample.

    An episode in quarantine is not played again: what refused it mostly refuses it again, and a run must end.
    """
    with connect(lake) as connection:
        rows = connection.execute("from unplayed where run_id = $1 order by problem_id, sample_index", [run_id]).pl()
    return [Dispatch(**row) for row in rows.to_dicts()]


def told_by(lake: str | None, run_id: str) -> list[Mapping[str, str]]:
    """The own prompts, as digests by file, under which episodes of a run or of a loop were graded so far; {}: the shipped ones."""
    with connect(lake) as connection:
        rows = connection.execute(
            """
            with graded as (select distinct episode_id from evidence)
            select distinct coalesce(own.value, '{}')
            from dispatches
            join graded using (episode_id)
            left join evidence as own on own.episode_id = dispatches.episode_id and own.name = 'prompts'
            where dispatches.run_id = $1 or dispatches.loop_id = $1
            order by all
            """,
            [run_id],
        ).fetchall()
    return [json.loads(value) for (value,) in rows]
