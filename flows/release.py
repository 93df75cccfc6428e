"""Release: weights become the served version."""

from pathlib import Path
from typing import Annotated

from prefect import flow
from pydantic import Field

from lakehouse.radar import LIMIT
from tasks.release import NotPromoted, admit, deploying, promote, register, serve


@flow(name="release", log_prints=True)
def release(
    folder: Path,
    stage: str = "grpo",
    parent: int | None = None,
    training_set_id: str | None = None,
    mlflow_run_id: str | None = None,
    max_hack_rate: Annotated[float, Field(ge=0, le=1)] = LIMIT,
) -> int:
    """Register the weights, reload the engine, prove that it serves them, and move `champion`. Returns the version.

    Args:
        folder: Model folder in Hugging Face format, as the trainer left it.
        stage: What kind of weights: base, sft, grpo.
        parent: The version these were trained from.
        training_set_id: What they were trained on.
        mlflow_run_id: The MLflow run that trained them.
        max_hack_rate: Not promoted beyond this share of episodes in which the radar saw a reward hack; 1 lets all pass.
    """
    version = register(folder, stage=stage, parent=parent, training_set_id=training_set_id, mlflow_run_id=mlflow_run_id)
    admit(version, max_hack_rate=max_hack_rate)
    with deploying():
        serve(version)
        promote(version)
    return version


def keep_or_withdraw(version: int, parent: int | None, *, max_hack_rate: float = LIMIT) -> None:
    """After an evaluation: where the version turns out to hack, its parent is served and promoted again; NotPromoted."""
    try:
        admit(version, max_hack_rate=max_hack_rate)
    except NotPromoted:
        if parent is not None:
            with deploying():
                serve(parent)
                promote(parent)
        raise
