"""What all flow runs share, as Prefect's global concurrency limits: how many of each there may be at a time.

`up` creates those that are missing. One that is there is left as it is: its size is the operator's.
"""

import os

from tasks.stack.api import send

ENGINE = "lakeloop-engine"  # episodes that are played: they share the engines behind the gateway
BOXES = "lakeloop-boxes"  # of these, the ones that have a box
GRADING = "lakeloop-grading"  # gradings in boxes, over all machines: each does as many at a time as it has cores
DEPLOYING = "lakeloop-deploying"  # flows that swap weights


def sizes() -> dict[str, int]:
    """The limits with the sizes that they are created with."""
    return {ENGINE: 256, BOXES: 64, GRADING: max(64, 4 * cores()), DEPLOYING: 1}


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0))


def create(api_url: str) -> None:
    """Create the limits that are not there. HTTPError where Prefect refuses one."""
    for name, size in sizes().items():
        if send("GET", f"{api_url}/v2/concurrency_limits/{name}", besides=404).status_code == 404:
            send("POST", f"{api_url}/v2/concurrency_limits/", {"name": name, "limit": size, "active": True})
