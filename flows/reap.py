"""Reap: what outlived its lease is removed from this machine, and nothing else."""

from prefect import flow

from tasks.reap import reap_boxes


@flow(name="reap", log_prints=True)
def reap() -> dict[str, int]:
    """Remove boxes past their lease from this machine: containers and control groups. How many of each backend.

    Run it on every machine that plays episodes. A box ends by itself when its lease is over or its controller dies; what is
    left for this are containers that were never started and control groups whose controller was killed.
    """
    return reap_boxes()
