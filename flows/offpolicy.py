"""Off-policy: what a version would earn, from episodes that others played."""

from typing import Annotated, Literal

from prefect import flow
from pydantic import Field

from lakehouse.evaluation.offpolicy import Estimated
from tasks.offpolicy import estimate


@flow(name="offpolicy", flow_run_name="offpolicy-{version}", log_prints=True)
def offpolicy(
    version: int,
    run_ids: Annotated[list[str], Field(min_length=1)],
    of: Literal["success", "reward"] = "success",
    min_effective_samples: Annotated[float, Field(gt=1)] = 32,
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95,
    deadline_s: Annotated[float, Field(gt=0)] = 1800,
) -> Estimated:
    """Estimate what a version would earn from the log-probs of episodes in the lake, before it plays any.

    Args:
        version: The version that is asked about.
        run_ids: Runs whose episodes are weighed, of whatever versions of the model.
        of: success estimates the share solved, reward the mean reward.
        min_effective_samples: Where the episodes are worth fewer of the version's own, there is no estimate.
        confidence: Of the intervals.
        deadline_s: Seconds that scoring the tokens may take.
    """
    return estimate(
        version,
        run_ids,
        of=of,
        min_effective_samples=min_effective_samples,
        confidence=confidence,
        deadline_s=deadline_s,
    )
