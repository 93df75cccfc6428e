"""Prefect's API over plain HTTP, for what `up` sets up: importing Prefect takes seconds."""

import time
from typing import Any

import httpx

LOCKED_S = 30.0


def send(method: str, url: str, body: Any = None, *, besides: int = 0) -> httpx.Response:
    """The answer; HTTPError where it refuses, unless with the status `besides`. 503 is Prefect's word for a SQLite database
    that is locked, which passes."""
    deadline = time.monotonic() + LOCKED_S
    while True:
        answer = httpx.request(method, url, json=body, timeout=30.0, trust_env=False)
        if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE or time.monotonic() > deadline:
            return answer if answer.status_code == besides else answer.raise_for_status()
        time.sleep(0.5)


def every(api_url: str, what: str) -> list[dict[str, Any]]:
    """All rows of a filter route, which gives at most 200 at a time."""
    rows: list[dict[str, Any]] = []
    while page := send("POST", f"{api_url}/{what}/filter", {"offset": len(rows)}).json():
        rows += page
    return rows
