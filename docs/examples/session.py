"""A session at the gateway: one key for the agent, another for whoever judges it. Standard library only."""

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

GATEWAY = os.environ.get("GATEWAY_URL", "http://127.0.0.1:8900")
MODEL = os.environ.get("MODEL", "tiny")


def post(path: str, key: str, body: dict[str, Any]) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(GATEWAY + path, json.dumps(body).encode(), headers)  # noqa: S310 - our own address
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - as above
        return json.load(answer)


def start(task: str, mode: str = "policy") -> dict[str, Any]:
    try:
        operator = Path(os.environ.get("LAKELOOP_HOME", ".lakeloop"), "keys", "operator").read_text().strip()
        return post("/rl/start_session", operator, {"task_id": task, "mode": mode})  # session_id, api_key, reward_key
    except OSError as error:
        why = error.read().decode() if isinstance(error, urllib.error.HTTPError) else error
        sys.exit(
            f"no session at {GATEWAY}: {why}\n`lakeloop up` starts a gateway; GATEWAY_URL and LAKELOOP_HOME name it"
        )


def judge(session: dict[str, Any], reward: float, reason: str) -> None:
    told = {"reward": reward, "scope": "episode", "labeller": "example", "reason": reason}
    post("/rl/set_reward", session["reward_key"], told)
    post("/rl/end_session", session["reward_key"], {})
    print(f"{session['session_id']}: reward {reward}, {reason}")
