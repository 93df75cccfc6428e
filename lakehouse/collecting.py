"""What is left to run: dispatched minus landed, asked of the lake and never of a process's memory."""

from lakehouse.query import connect
from lakehouse.records import Dispatch


def remaining(lake: str | None, run_id: str) -> list[Dispatch]:
    """Dispatches of a run whose episode has not landed, in the order of problem and sample."""
    with connect(lake) as connection:
        rows = connection.execute(
            """
            select dispatches.*
            from dispatches
            anti join bronze.episodes as landed using (episode_id)
            where dispatches.run_id = $1
            order by problem_id, sample_index
            """,
            [run_id],
        ).pl()
    return [Dispatch(**row) for row in rows.to_dicts()]
