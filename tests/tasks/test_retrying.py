"""Only what may pass is tried again."""

import asyncio
from importlib import import_module
from pathlib import Path

import httpx
import pytest
import requests
from mlflow.exceptions import MlflowException
from prefect import Task
from prefect.client.schemas.objects import TaskRun
from prefect.states import Crashed, Failed
from pydantic import TypeAdapter

from lakehouse.governance.erase import Tainted
from lakehouse.label import CoverageError
from lakehouse.selection.select import NothingTrainable, Selection
from lakehouse.store import LakeBusy, Overtaken
from sandboxes.backends.base import BackendUnavailable
from sandboxes.gateway.client import GatewayRefused, GatewayUnavailable
from tasks.registry.versions import RegistryError
from tasks.retrying import infrastructure, passes
from tasks.serving.errors import EngineError

REQUEST = httpx.Request("GET", "http://x")
GRPO = Selection(objective="grpo", rubrics=["swe@2"], filter="grpo", policy_version=1, model_name="toy")


def status(code: int) -> httpx.HTTPStatusError:
    return httpx.HTTPStatusError("said", request=REQUEST, response=httpx.Response(code, request=REQUEST))


def invalid() -> ValueError:
    with pytest.raises(ValueError) as told:
        TypeAdapter(int).validate_python("x")
    return told.value


def caused(error: Exception, by: Exception) -> Exception:
    error.__cause__ = by
    return error


OUTAGES = [
    LakeBusy("busy"), Overtaken("x", ["y"]), GatewayUnavailable("away"), BackendUnavailable("away"), ConnectionResetError(),
    TimeoutError(), OSError(28, "no space left"), httpx.ConnectError("refused"), status(503), status(429), status(500),
    requests.exceptions.ConnectionError("refused"), MlflowException("API request failed"),
    caused(EngineError("did not answer"), httpx.ReadTimeout("late")),
    ExceptionGroup("both", [GatewayUnavailable("away"), OSError(5, "io")]),
]  # fmt: skip
WRONG = [
    ValueError("no"), invalid(), KeyError("x"), AssertionError(), FileNotFoundError("no file"), PermissionError(),
    RegistryError("no version 9"), Tainted("erased"), NothingTrainable(GRPO, {}), GatewayRefused(409, "no"),
    CoverageError.__new__(CoverageError),
    EngineError("refused"), status(404), status(422), MlflowException("no", error_code=3),
    caused(RegistryError("none"), MlflowException("absent", error_code=1001)),
    ExceptionGroup("one", [GatewayUnavailable("away"), ValueError("no")]),
]  # fmt: skip


@pytest.mark.parametrize("error", OUTAGES, ids=repr)
def test_an_outage_is_tried_again(error):
    assert passes(error)
    assert infrastructure(None, TaskRun(task_key="t", dynamic_key="0"), Failed(data=error))


@pytest.mark.parametrize("error", WRONG, ids=repr)
def test_what_would_fail_again_is_not(error):
    assert not passes(error)


def test_a_task_that_crashed_is_not():
    assert not infrastructure(None, TaskRun(task_key="t", dynamic_key="0"), Crashed(message="gone"))


def test_an_error_that_was_only_being_handled_does_not_count():
    try:
        try:
            raise TimeoutError
        except TimeoutError:
            raise ValueError("wrong all the same")  # noqa: B904 - this is what is tested
    except ValueError as error:
        assert not passes(error)


def test_every_task_that_is_tried_again_asks():
    modules = [
        import_module(f"tasks.{file.stem}")
        for file in (Path(__file__).parents[2] / "tasks").glob("*.py")
        if file.stem != "__init__"
    ]
    found = {one for module in modules for one in vars(module).values() if isinstance(one, Task) and one.retries}
    assert len(found) > 20
    assert [one.name for one in found if one.retry_condition_fn is not infrastructure] == []
    assert not [one.name for one in found if asyncio.iscoroutinefunction(one.retry_condition_fn)]
