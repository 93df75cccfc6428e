"""The work pool and the deployments of `prefect.yaml` in Prefect, registered again only when something changed.

Registering imports every flow and takes several seconds of a core, so what was registered is noted in a Prefect variable,
beside the deployments themselves. It makes schedules and triggers anew, as `prefect.yaml` has them: switched off. Those that
a person had switched on in the UI are switched on again.
"""

import hashlib
import json
from typing import Any

import httpx

from lakehouse.home import Home
from tasks.stack.api import every, send
from tasks.stack.probes import NOTHING, OWNER, READY, Look
from tasks.stack.settings import POOL, ROOT

VARIABLE = "lakeloop_deployments"
SWITCHES = "lakeloop_switched_on"  # the same: what is to be switched on again, while registering is under way
SOURCES = ["flows", "tasks", "sandboxes", "lakehouse"]  # parameter types of a flow may come from any of them


def create_pool(api_url: str) -> None:
    """Create the process work pool if it is not there. Its job template is filled in by the first worker."""
    body = {"name": POOL, "type": "process", "description": "Flow runs on this machine, as processes."}
    send("POST", f"{api_url}/work_pools/", body, besides=409)  # 409: it exists


def registered(api_url: str) -> Look:
    """READY when the deployments in Prefect are those of this checkout as it is now."""
    try:
        answer = httpx.get(f"{api_url}/variables/name/{VARIABLE}", timeout=10.0, trust_env=False)
    except httpx.HTTPError:
        return NOTHING
    return READY if answer.status_code == 200 and answer.json()["value"] == fingerprint() else NOTHING


def note(api_url: str, home: Home) -> None:
    """Note that the deployments of this checkout are registered, and whose flow runs this server hands out."""
    for name, value in ((VARIABLE, fingerprint()), (OWNER, str(home.root))):
        _put(api_url, name, value)


def keep_switches(api_url: str) -> None:
    """Note which schedules and triggers are on, before registering switches them off. What a killed `up` noted counts too."""
    on = _kept(api_url) + [name for name, (_, is_on) in _switches(api_url).items() if is_on]
    _put(api_url, SWITCHES, json.dumps(sorted(set(on))))


def restore_switches(api_url: str) -> None:
    """Switch on again what was on. What is not there any more is left out."""
    switches = _switches(api_url)
    for name in _kept(api_url):
        path, is_on = switches.get(name, ("", True))
        if not is_on:
            send("PATCH", f"{api_url}{path}", {"enabled" if path.startswith("/automations") else "active": True})
    send("DELETE", f"{api_url}/variables/name/{SWITCHES}", besides=404)


def _switches(api_url: str) -> dict[str, tuple[str, bool]]:
    """Every schedule and trigger of a deployment by name: its path, and whether it is on."""
    found = {}
    for one in every(api_url, "deployments"):
        for schedule in one["schedules"]:
            path = f"/deployments/{one['id']}/schedules/{schedule['id']}"
            found[f"{one['name']}/{schedule.get('slug')}"] = (path, bool(schedule["active"]))
    for one in every(api_url, "automations"):
        if any(action["type"] == "run-deployment" for action in one["actions"]):
            found[one["name"]] = (f"/automations/{one['id']}", bool(one["enabled"]))
    return found


def _kept(api_url: str) -> list[str]:
    answer = send("GET", f"{api_url}/variables/name/{SWITCHES}", besides=404)
    names: list[str] = json.loads(answer.json()["value"]) if answer.status_code == httpx.codes.OK else []
    return names


def _put(api_url: str, name: str, value: Any) -> None:
    """Set a Prefect variable."""
    if send("PATCH", f"{api_url}/variables/name/{name}", {"value": value}, besides=404).status_code == 404:
        send("POST", f"{api_url}/variables/", {"name": name, "value": value})


def fingerprint() -> str:
    """A digest of the place and the content of all that can change a deployment."""
    total = hashlib.sha256(str(ROOT).encode())
    for file in [ROOT / "prefect.yaml", *sorted(path for name in SOURCES for path in (ROOT / name).rglob("*.py"))]:
        total.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return total.hexdigest()
