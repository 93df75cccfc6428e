"""Erase: a subject's or an episode's data goes, everywhere, and a scan proves it."""

from prefect import flow

from tasks.describe import describe, versions_of
from tasks.erase import demote, prove, remove_rows, remove_sessions, remove_trees


@flow(name="erase", log_prints=True)
def erase(erasure_id: str) -> dict[str, object]:
    """Carry out an erasure that `lakeloop erase` has planned. Run again after a failure, it goes on where it was.

    Ids and names are in the plan's file only, never in a parameter: Prefect would keep them.

    Args:
        erasure_id: What `lakeloop erase --plan` has printed.
    """
    remove_rows(erasure_id)
    remove_sessions(erasure_id)
    remove_trees(erasure_id)
    demoted = demote(erasure_id)
    proved = prove(erasure_id, demoted)
    for version in versions_of(proved.tainted):
        describe(version, return_state=True)  # their cards say so at the top
    return proved.model_dump(mode="json")
