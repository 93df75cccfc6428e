"""Automations that `up` installs in Prefect: runs whose process died are ended, and failures are told to people.

One that is there is left as it is: it may be changed or switched off in the UI. A deleted one comes back with the next `up`.
"""

from typing import Any

import httpx

from tasks.stack.api import every, send

HEARTBEAT_S = 30  # the least that Prefect allows
SILENT_S = 180  # longer than the server takes to be started again: meanwhile it hears no heartbeats
NOT_BEGUN_S = 600  # from being handed to a worker until it runs: on a busy machine importing a flow takes a while

ZOMBIES = "lakeloop: end runs whose process died"
STUCK = "lakeloop: end runs that a worker took and never began"
FAILURES = "lakeloop: tell of failures"


class NoSuchBlock(LookupError):
    """LAKELOOP_NOTIFY names no notification block."""


def create(api_url: str, notify: str | None) -> None:
    """Create the automations that are not there. `notify`: a notification block as TYPE/NAME, such as slack-webhook/team.

    NoSuchBlock where Prefect has no such block, HTTPError where it refuses.
    """
    wanted = [zombies(), _stuck()]
    if notify:
        wanted.append(_failures(notify, _block(api_url, notify)))
    known = {one["name"] for one in every(api_url, "automations")}
    for automation in wanted:
        if automation["name"] not in known:
            send("POST", f"{api_url}/automations/", automation)


def zombies(silent_s: int = SILENT_S) -> dict[str, Any]:
    """Flow runs tell every half minute that they live; nothing else tells that one was killed together with its worker."""
    return {
        "name": ZOMBIES,
        "description": f"A flow run of which nothing was heard for {silent_s} s is crashed.",
        "trigger": _absent(["prefect.flow-run.heartbeat"], ["prefect.flow-run.*"], silent_s),
        "actions": [_crash(f"its process is gone: nothing was heard of it for {silent_s} s")],
    }


def _stuck() -> dict[str, Any]:
    after = "Running Completed Failed Crashed Cancelling Cancelled Scheduled Late AwaitingRetry AwaitingConcurrencySlot".split()
    return {
        "name": STUCK,
        "description": f"A flow run that is pending for {NOT_BEGUN_S} s is crashed: its worker was killed.",
        "trigger": _absent(["prefect.flow-run.Pending"], [f"prefect.flow-run.{state}" for state in after], NOT_BEGUN_S),
        "actions": [_crash(f"it had not begun {NOT_BEGUN_S} s after a worker took it")],
    }


def _failures(notify: str, block_id: str) -> dict[str, Any]:
    return {
        "name": f"{FAILURES} ({notify})",
        "description": "A run of a deployment that failed or crashed is told to people. Who runs a command sees it.",
        "trigger": {
            "type": "event",
            "posture": "Reactive",
            "expect": ["prefect.flow-run.Failed", "prefect.flow-run.Crashed"],
            "match": {"prefect.resource.id": "prefect.flow-run.*"},
            "match_related": {"prefect.resource.role": "deployment"},  # the parts of a run have none
            "threshold": 1,
            "within": 0,
        },
        "actions": [
            {
                "type": "send-notification",
                "block_document_id": block_id,
                "subject": "{{ flow.name }}: {{ flow_run.state.name }}",
                "body": "{{ flow.name }} run {{ flow_run.name }} is {{ flow_run.state.name }}: {{ flow_run.state.message }}\n"
                "{{ flow_run|ui_url }}",
            }
        ],
    }


def _absent(after: list[str], expect: list[str], within_s: float) -> dict[str, Any]:
    """A trigger that fires for each flow run of which nothing expected is heard for so long."""
    return {
        "type": "event",
        "posture": "Proactive",
        "after": after,
        "expect": expect,
        "match": {"prefect.resource.id": "prefect.flow-run.*"},
        "for_each": ["prefect.resource.id"],
        "threshold": 1,
        "within": within_s,
    }


def _crash(message: str) -> dict[str, Any]:
    return {"type": "change-flow-run-state", "name": "Crashed", "state": "CRASHED", "message": message}


def _block(api_url: str, notify: str) -> str:
    kind, _, name = notify.partition("/")
    answer = send("GET", f"{api_url}/block_types/slug/{kind}/block_documents/name/{name or '-'}", besides=404)
    if answer.status_code == httpx.codes.NOT_FOUND:
        raise NoSuchBlock(
            f"LAKELOOP_NOTIFY is {notify!r}, and Prefect has no such block. Make one in its UI (Blocks), of a type that sends "
            "notifications, and name it TYPE/NAME, such as slack-webhook/team"
        )
    return str(answer.json()["id"])
