"""Label: evidence becomes rewards."""

from typing import Annotated, Any

from prefect import flow
from prefect.artifacts import create_table_artifact
from pydantic import Field

from tasks.label import CoverageError, apply, checked, current_rubrics, tell_labelled
from tasks.showing import show


@flow(name="label", log_prints=True)
def label(
    rubrics: list[str] | None = None,
    run_ids: list[str] | None = None,
    where: str = "true",
    max_unjudged: Annotated[float, Field(ge=0, le=1)] | None = None,
) -> list[dict[str, Any]]:
    """Judge episodes by SQL rubrics. Idempotent: only judgements that changed are appended.

    Args:
        rubrics: Rubrics with their versions, such as swe@2, or with parameters, such as judge@1:pass=0.8. Default: the
            newest one of every kind of problem.
        run_ids: Runs to judge. Default: all.
        where: Which of their episodes: SQL over the columns of `episodes`.
        max_unjudged: Share of the episodes that may stay without a reward though they ended by the policy's own doing.
            Where it is more, what should have measured them has failed: that rubric writes nothing, and the run fails once
            the others are done. Default: what the rubric says, mostly a half.
    """
    table: list[dict[str, Any]] = []
    failures: list[CoverageError] = []
    for rubric in checked(rubrics or current_rubrics()):
        try:
            found = apply(rubric, run_ids or [], where, max_unjudged)
        except CoverageError as failure:
            failures.append(failure)
        else:
            table.append({"rubric": rubric, **found.model_dump()})
    show(create_table_artifact, key="rewards", table=table, description="Judgements by rubric")
    tell_labelled(run_ids or [])
    if failures:
        raise failures[0]
    return table
