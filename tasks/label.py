"""Label: the Prefect task that judges episodes by a rubric."""

from collections.abc import Iterable, Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from lakehouse.label import Labelled, current, label
from sandboxes.problems.kinds import KINDS


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=2, task_run_name="judge {rubric}")
def judge(rubric: str, run_ids: Sequence[str]) -> Labelled:
    """Judge the episodes of these runs (all runs when empty) of the rubric's kind of problem."""
    where = f"run_id in ({', '.join(map(_quoted, run_ids))})" if run_ids else "true"
    return label(None, rubric, where=where)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def current_rubrics(names: Iterable[str] = tuple(KINDS)) -> list[str]:
    """The rubric of each kind of problem, or of the kinds of such sets as search/debian, in the version its file has now."""
    return [current(kind) for kind in sorted({name.partition("/")[0] for name in names})]
