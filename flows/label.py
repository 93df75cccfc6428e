"""Label: evidence becomes rewards."""

from prefect import flow
from prefect.artifacts import create_table_artifact

from tasks.label import current_rubrics, judge


@flow(name="label", log_prints=True)
def label(rubrics: list[str] | None = None, run_ids: list[str] | None = None) -> None:
    """Judge episodes by SQL rubrics. Idempotent: only judgements that changed are appended.

    Args:
        rubrics: Rubrics with their versions. Default: the current one of every kind of problem.
        run_ids: Runs to judge. Default: all.
    """
    table = []
    for rubric in rubrics or current_rubrics():
        found = judge(rubric, run_ids or [])
        table.append({"rubric": rubric, **vars(found)})
    create_table_artifact(key="rewards", table=table, description="Judgements by rubric")
