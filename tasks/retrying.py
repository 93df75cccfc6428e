"""What is worth another try: infrastructure that failed. Every task that is tried again asks here.

A wrong parameter, a version that may not be promoted or nothing to train on is the same the second time.
"""

from collections.abc import Iterator
from typing import Any

import httpx
from prefect import Task
from prefect.client.schemas.objects import State, TaskRun

from lakehouse.outages import PASSING
from sandboxes.backends.base import BackendUnavailable
from sandboxes.gateway.client import GatewayUnavailable
from tasks.training.outbox import is_outage

INFRASTRUCTURE = (*PASSING, GatewayUnavailable, BackendUnavailable)
WRONG_PATHS = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError)
# Of MLflow's exceptions, known by their code: importing the class costs every flow run a second.
MLFLOW_OUTAGES = ("INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED")


def infrastructure(task: Task[Any, Any], run: TaskRun, state: State[Any]) -> bool:
    """Prefect's `retry_condition_fn`: whether a task failed for a reason that may be gone at the next try."""
    return isinstance(state.data, BaseException) and passes(state.data)


def passes(error: BaseException) -> bool:
    """Whether the error, or what caused it, is an outage. A group of errors is one where each of them is."""
    if isinstance(error, BaseExceptionGroup):
        return all(passes(one) for one in error.exceptions)
    return any(map(_outage, _chain(error)))


def _outage(error: BaseException) -> bool:
    if isinstance(error, INFRASTRUCTURE):
        return True
    if isinstance(error, httpx.HTTPError):
        return is_outage(error)
    if isinstance(error, OSError):  # also every time-out, and what `requests` raises
        return not isinstance(error, WRONG_PATHS)
    return getattr(error, "error_code", None) in MLFLOW_OUTAGES


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it was raised from; not what was merely being handled."""
    while error is not None:
        yield error
        error = error.__cause__
