"""Learn: what was sampled lately and waits to be trained on becomes a version, and takes service if it passes the gate."""

from typing import Annotated

from prefect import flow
from pydantic import Field

from flows.release import release
from flows.train import train
from lakehouse.waiting import ENOUGH, waiting
from tasks.stack.settings import Settings
from tasks.training.objectives import ObjectiveName


@flow(name="learn", log_prints=True)
async def learn(
    objective: ObjectiveName = "grpo",
    enough: Annotated[int, Field(ge=1)] = ENOUGH,
    max_staleness: Annotated[int, Field(ge=0)] = 1,
    policy: str | None = "default",
) -> int | None:
    """Train on the runs that no training set has seen, if their groups are enough, and release what comes of it.

    Nothing is trained on twice, however often this runs: by a schedule, by events, by hand. Returns the version; None where
    too little waits. Runs of loops are left alone. NotPromoted where the gate refuses.

    Args:
        objective: How to train: docs/objectives.md.
        enough: Groups with different outcomes that are worth a step.
        max_staleness: How many steps of training an episode may be behind the promoted one.
        policy: The gate's policy, shipped (default, strict) or a TOML file; null for the radar alone.
    """
    found = waiting(None, Settings().model_name, max_staleness=max_staleness)
    groups = sum(found.values())
    if groups < enough:
        print(f"{groups} groups of {len(found)} runs wait, and {enough} are enough: nothing is trained")
        return None
    print(f"training on {groups} groups of {', '.join(found)}")
    trained = await train(objective=objective, run_ids=list(found), max_staleness=max_staleness)
    return await release(
        trained.folder,
        stage=objective,
        parent=trained.parent,
        training_set_id=trained.training_set_id,
        mlflow_run_id=trained.mlflow_run_id,
        policy=policy,
    )
