"""The work pool and the deployments of `prefect.yaml` in Prefect, registered again only when something changed.

Registering imports every flow and takes several seconds of a core, so what was registered is noted in a Prefect variable,
beside the deployments themselves.
"""

import hashlib
import time

import httpx

from lakehouse.home import Home
from tasks.stack.probes import NOTHING, OWNER, READY, Look
from tasks.stack.settings import POOL, ROOT

VARIABLE = "lakeloop_deployments"
LOCKED_S = 30.0
SOURCES = ["flows", "tasks", "sandboxes", "lakehouse"]  # parameter types of a flow may come from any of them


def create_pool(api_url: str) -> None:
    """Create the process work pool if it is not there. Its job template is filled in by the first worker."""
    body = {"name": POOL, "type": "process", "description": "Flow runs on this machine, as processes."}
    _send("POST", f"{api_url}/work_pools/", body, besides=409)  # 409: it exists


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
        if _send("PATCH", f"{api_url}/variables/name/{name}", {"value": value}, besides=404).status_code == 404:
            _send("POST", f"{api_url}/variables/", {"name": name, "value": value})


def fingerprint() -> str:
    """A digest of the place and the content of all that can change a deployment."""
    total = hashlib.sha256(str(ROOT).encode())
    for file in [ROOT / "prefect.yaml", *sorted(path for name in SOURCES for path in (ROOT / name).rglob("*.py"))]:
        total.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return total.hexdigest()


def _send(method: str, url: str, body: dict[str, str], *, besides: int = 0) -> httpx.Response:
    """Send it. 503 is Prefect's word for a SQLite database that is locked, which passes."""
    deadline = time.monotonic() + LOCKED_S
    while True:
        answer = httpx.request(method, url, json=body, timeout=30.0, trust_env=False)
        if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE or time.monotonic() > deadline:
            return answer if answer.status_code == besides else answer.raise_for_status()
        time.sleep(0.5)
