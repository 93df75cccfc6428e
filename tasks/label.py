"""Label: the Prefect task that judges episodes by a rubric."""

from collections.abc import Iterable, Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from lakehouse.label import CoverageError, Labelled, current, label
from lakehouse.rubrics import asked
from lakehouse.waiting import ENOUGH, waiting
from sandboxes.problems.kinds import KINDS
from tasks.acting import actor
from tasks.events import tell
from tasks.retrying import infrastructure
from tasks.stack.settings import Settings

__all__ = ["CoverageError", "apply", "checked", "current_rubrics", "selected", "tell_labelled"]


@task(
    cache_policy=NO_CACHE,
    retries=2,
    retry_delay_seconds=2,
    retry_condition_fn=infrastructure,
    task_run_name="apply {rubric}",
)
def apply(rubric: str, run_ids: Sequence[str], where: str = "true", max_unjudged: float | None = None) -> Labelled:
    """Judge the episodes of these runs (all runs when empty) of the rubric's kinds of problem."""
    return label(None, rubric, where=selected(run_ids, where), max_unjudged=max_unjudged, actor=actor())


def selected(run_ids: Sequence[str], where: str) -> str:
    """SQL over the columns of `episodes`: those of these runs (all runs when empty) for which `where` holds."""
    runs = f"run_id in ({', '.join(map(_quoted, run_ids))})" if run_ids else "true"
    return f"{runs} and (\n{where}\n)"


def checked(rubrics: Sequence[str]) -> Sequence[str]:
    """The rubrics as they are; UnknownRubric or RubricError before anything is judged."""
    for rubric in rubrics:
        asked(rubric)
    return rubrics


def current_rubrics(names: Iterable[str] = tuple(KINDS)) -> list[str]:
    """The newest rubric of each kind of problem, or of the kinds of such sets as search/debian."""
    return [current(kind) for kind in sorted({name.partition("/")[0] for name in names})]


def tell_labelled(run_ids: Sequence[str]) -> None:
    """Tell Prefect that these runs have rewards, and of what waits to be trained on where that is enough for a step."""
    for run in run_ids:
        tell("run.labelled", f"run.{run}", {"run_id": run})
    name = Settings().model_name
    found = waiting(None, name)
    if (groups := sum(found.values())) >= ENOUGH:
        tell("groups.waiting", f"model.{name}", {"groups": groups, "run_ids": list(found)})


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
