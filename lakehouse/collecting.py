"""What is left to run: dispatched minus landed and quarantined, asked of the lake and never of a process's memory."""

from lakehouse.query import connect
from lakehouse.records import Dispatch


def remaining(lake: str | None, run_id: str) -> list[Dispatch]:
    """Dispatches of a run whose episode has neither landed nor been refused, in the order of problem and sample.

    An episode in quarantine is not played again: what refused it mostly refuses it again, and a run must end.
    """
    with connect(lake) as connection:
        rows = connection.execute("from unplayed where run_id = $1 order by problem_id, sample_index", [run_id]).pl()
    return [Dispatch(**row) for row in rows.to_dicts()]
