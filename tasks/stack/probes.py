"""Is the right program answering? One probe per service; each says what it saw, so that an error can name it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any

import httpx

TIMEOUT_S = 3.0
OWNER = "lakeloop_home"  # a Prefect variable: the home folder whose stack the server belongs to


class Seen(StrEnum):
    NOTHING = "nothing"  # nobody listens, or the program is not ready yet
    READY = "ready"
    FOREIGN = "foreign"  # something answers that is not what we want there
    SILENT = "silent"  # something takes connections and does not answer in time


@dataclass(frozen=True)
class Look:
    seen: Seen
    what: str = ""  # for people: what answered instead


READY = Look(Seen.READY)
NOTHING = Look(Seen.NOTHING)


def foreign(what: str) -> Look:
    return Look(Seen.FOREIGN, what)


def prefect(api_url: str, home: str) -> Look:
    """A Prefect server (`/api/health` is the JSON value `true`) that does not belong to another home folder.

    Two homes on one server would run each other's flows, each in its own lake.
    """
    answer = _ask("GET", f"{api_url}/health")
    if isinstance(answer, Look):
        return answer
    if answer.text.strip() != "true":
        return _other(answer)
    owner = (
        _json(owned) if isinstance(owned := _ask("GET", f"{api_url}/variables/name/{OWNER}"), httpx.Response) else None
    )
    if isinstance(owner, dict) and owner.get("value", home) != home:
        return foreign(f"the Prefect server of the home folder {owner['value']}")
    return READY


def mlflow(url: str) -> Look:
    """An MLflow server: `/version` is a version number and `/health` says OK."""
    answer = _ask("GET", f"{url}/version")
    if isinstance(answer, Look):
        return answer
    if answer.status_code != 200 or not answer.text[:1].isdigit() or len(answer.text) > 40:
        return _other(answer)
    health = _ask("GET", f"{url}/health")
    if isinstance(health, Look):
        return health
    return READY if health.text.strip() == "OK" else _other(answer)


def engine(url: str, model_name: str) -> Look:
    """A vLLM engine that serves `model_name` and can be controlled."""
    answer = _ask("GET", f"{url}/v1/models")
    if isinstance(answer, Look):
        return answer
    served = [str(model.get("id")) for model in _list(_json(answer), "data")]
    if not served:
        return _other(answer)
    if model_name not in served:
        return foreign(f"an engine that serves {', '.join(served)} and not {model_name} (LAKELOOP_MODEL)")
    control = _ask("GET", f"{url}/weight_info")
    if isinstance(control, Look):
        return control  # an engine that takes new weights in answers when it has them
    if control.status_code == 404:
        return foreign("an engine without control routes; start it with VLLM_SERVER_DEV_MODE=1")
    health = _ask("GET", f"{url}/health")
    good = isinstance(health, httpx.Response) and health.status_code == 200 == control.status_code
    return READY if good else NOTHING


def gateway(url: str, operator_key: str | None, *, engine_url: str, model_name: str) -> Look:
    """A Lakeloop gateway in front of that engine and model which knows this home's operator key."""
    health = _ask("GET", f"{url}/health")
    if isinstance(health, Look):
        return health
    facts = _json(health)
    if not isinstance(facts, dict) or "engine_url" not in facts:
        return _other(health)
    if (facts["engine_url"], facts.get("model")) != (engine_url, model_name):
        return foreign(f"a gateway to {facts.get('model')} at {facts['engine_url']}")
    if operator_key is None:
        return foreign("a gateway of another home folder (its operator key is not ours)")
    headers = {"Authorization": f"Bearer {operator_key}"}
    answer = _ask("GET", f"{url}/sessions/none/calls", headers=headers)
    if isinstance(answer, httpx.Response) and answer.status_code in (401, 403):
        return foreign("a gateway of another home folder (it refuses our operator key)")
    return READY


def worker(api_url: str, pool: str, name: str, since: float) -> Look:
    """A Prefect worker that reported to its pool after `since` (seconds since the epoch)."""
    answer = _ask(
        "POST", f"{api_url}/work_pools/{pool}/workers/filter", json={"workers": {"status": {"any_": ["ONLINE"]}}}
    )
    if isinstance(answer, Look):
        return NOTHING
    if answer.status_code != 200:
        return _other(answer)
    for found in answer.json():
        beat = found.get("last_heartbeat_time")
        if found.get("name") == name and beat and datetime.fromisoformat(beat).timestamp() >= since:
            return READY
    return NOTHING


@cache
def _client() -> httpx.Client:
    # trust_env: a proxy setting of the machine must not catch calls to loopback
    return httpx.Client(timeout=TIMEOUT_S, trust_env=False)


def _ask(method: str, url: str, *, json: Any = None, headers: Mapping[str, str] | None = None) -> httpx.Response | Look:
    try:
        return _client().request(method, url, json=json, headers=headers)
    except (httpx.ConnectError, httpx.ConnectTimeout):
        return NOTHING
    except httpx.TimeoutException:
        return Look(Seen.SILENT, f"a program that takes connections and does not answer within {TIMEOUT_S:.0f} s")
    except httpx.HTTPError as error:
        return foreign(f"a program that does not speak HTTP ({error})")


def _other(answer: httpx.Response) -> Look:
    server = answer.headers.get("server", "unnamed")
    return foreign(f"another HTTP server ({server}; {answer.request.url.path} gave {answer.status_code})")


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return None


def _list(document: Any, key: str) -> list[dict[str, Any]]:
    found = document.get(key) if isinstance(document, dict) else None
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
