"""What the loop waits for: loops as the lake has them, whether their runs live, versions, and who uses what is shared.

Asked of the lake and of each server; what does not answer is left out, and said.
"""

from datetime import datetime
from typing import Any

import httpx
from pydantic import BaseModel, Field

from lakehouse.locks import held
from lakehouse.query import QueryError
from lakehouse.store import LakeError
from lakehouse.waiting import ENOUGH, Loop, loops, waiting
from tasks.serving.canary import LOCK
from tasks.serving.errors import EngineError
from tasks.serving.gate import Gate
from tasks.stack import limits
from tasks.stack.settings import Settings

TIMEOUT_S = 5.0
LOOP_FLOWS = ["improve", "learn", "canary"]
ALIASES = ("champion", "challenger")


class Place(BaseModel):
    """A limit that runs share."""

    name: str
    taken: int
    of: int


class Run(BaseModel):
    """A flow run that trains and releases."""

    flow_run_id: str
    name: str
    state: str
    since: datetime | None


class Split(BaseModel):
    """How the gateway parts new sessions between two versions."""

    champion: int
    challenger: int
    share: float  # for the challenger
    until: datetime  # then it gets none
    canary: bool  # whether one is at work; else it was left by one that died


class Now(BaseModel):
    """How it stands. What could not be asked is None, or empty, with a line in `unknown`."""

    served: str | None = None  # the engine's label
    champion: int | None = None
    challenger: int | None = None
    split: Split | None = None
    loops: list[Loop] = []
    runs: list[Run] = []  # that are at work or due
    waiting: dict[str, int] = Field(default={}, description="groups that nobody has trained on, by run")
    enough: int = ENOUGH
    places: list[Place] = []
    unknown: list[str] = []


def now(settings: Settings) -> Now:
    """How it stands now."""
    found = Now()
    with httpx.Client(timeout=TIMEOUT_S, trust_env=False) as http:
        for part in (_served, _aliases, _prefect, _split):
            try:
                part(found, settings, http)
            except (httpx.HTTPError, EngineError, KeyError, ValueError, OSError) as error:
                found.unknown.append(f"{part.__name__.strip('_')}: {error}")
    try:
        found.loops = loops(None)
        found.waiting = waiting(None, settings.model_name)
    except (LakeError, QueryError, OSError) as error:
        found.unknown.append(f"lake: {error}")
    return found


def _served(found: Now, settings: Settings, http: httpx.Client) -> None:
    found.served = str(_answer(http, "GET", f"{settings.engine}/weight_info")["weight_version"])


def _aliases(found: Now, settings: Settings, http: httpx.Client) -> None:
    url = f"{settings.mlflow_url}/api/2.0/mlflow/registered-models/alias"
    for alias in ALIASES:
        answer = http.get(url, params={"name": settings.model_name, "alias": alias})
        if answer.status_code not in (400, 404):  # no such model, or no such alias
            setattr(found, alias, int(answer.raise_for_status().json()["model_version"]["version"]))


def _prefect(found: Now, settings: Settings, http: httpx.Client) -> None:
    api = settings.prefect_url
    asked = {
        "flows": {"name": {"any_": LOOP_FLOWS}},
        "flow_runs": {"state": {"type": {"any_": ["PENDING", "RUNNING", "CANCELLING"]}}},
    }
    for run in _answer(http, "POST", f"{api}/flow_runs/filter", asked):
        found.runs.append(
            Run(flow_run_id=run["id"], name=run["name"], state=run["state_name"], since=run["start_time"])
        )
    shared = limits.sizes()
    for limit in _answer(http, "POST", f"{api}/v2/concurrency_limits/filter", {}):
        if limit["name"] in shared:
            found.places.append(Place(name=limit["name"], taken=limit["active_slots"], of=limit["limit"]))


def _split(found: Now, settings: Settings, http: httpx.Client) -> None:
    with Gate(settings.gateway_url, settings.operator_key) as gate:
        engines, split = gate.engines(), gate.split()
    if not engines:
        raise EngineError(f"there is no gateway at {settings.gateway_url}")
    if split is not None:
        found.split = Split(**split, canary=held(settings.home.root / LOCK))


def _answer(http: httpx.Client, method: str, url: str, body: Any = None) -> Any:
    return http.request(method, url, json=body).raise_for_status().json()
