"""Release: weights become the served version."""

from pathlib import Path

from prefect import flow

from tasks.release import deploying, promote, register, serve


@flow(name="release", log_prints=True)
def release(
    folder: Path,
    stage: str = "grpo",
    parent: int | None = None,
    training_set_id: str | None = None,
    mlflow_run_id: str | None = None,
) -> int:
    """Register the weights, reload the engine, prove that it serves them, and move `champion`. Returns the version.

    Args:
        folder: Model folder in Hugging Face format, as the trainer left it.
        stage: What kind of weights: base, sft, grpo.
        parent: The version these were trained from.
        training_set_id: What they were trained on.
        mlflow_run_id: The MLflow run that trained them.
    """
    version = register(folder, stage=stage, parent=parent, training_set_id=training_set_id, mlflow_run_id=mlflow_run_id)
    with deploying():
        serve(version)
        promote(version)
    return version
