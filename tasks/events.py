"""What happened, told to Prefect: its automations start runs by it, and its event feed is the loop's diary.

| event | resource | labels |
|---|---|---|
| lakeloop.run.landed | lakeloop.run.RUN_ID | lakeloop.purpose |
| lakeloop.run.labelled | lakeloop.run.RUN_ID | |
| lakeloop.groups.waiting | lakeloop.model.NAME | |
| lakeloop.version.registered | lakeloop.version.NAME.NUMBER | lakeloop.examined: whether the release has a gate |
| lakeloop.version.served | lakeloop.version.NAME.NUMBER | |
| lakeloop.alias.moved | lakeloop.alias.NAME.ALIAS | lakeloop.alias |
| lakeloop.canary.ended | lakeloop.version.NAME.NUMBER | lakeloop.action |
| lakeloop.gate.decided | lakeloop.version.NAME.NUMBER | lakeloop.passed |

Each has the label `lakeloop.within`: "none" where the flow run was started by itself, "flow" where it is a part of another,
which does by itself what comes next. Triggers match "none", so that nothing is done twice.
"""

from typing import Any

from prefect.context import FlowRunContext
from prefect.events import emit_event
from prefect.runtime import flow_run

from tasks.showing import AWAY


def tell(event: str, resource: str, payload: dict[str, Any], **labels: str) -> None:
    """Emit `lakeloop.EVENT` about `lakeloop.RESOURCE`; labels are written `purpose="train"`. Outside of a flow run nobody hears."""
    if not flow_run.id:
        return
    about = {
        "prefect.resource.id": f"lakeloop.{resource}",
        "lakeloop.within": _within(),
        **{f"lakeloop.{name}": value for name, value in labels.items()},
    }
    related = [{"prefect.resource.id": f"prefect.flow-run.{flow_run.id}", "prefect.resource.role": "flow-run"}]
    emit_event(f"lakeloop.{event}", about, related=related, payload=payload)


def _within() -> str:
    """Whether this flow run is a part of another. Asked of the run itself where we are in it: the server may be away."""
    context = FlowRunContext.get()
    if context is not None and context.flow_run is not None:
        return "flow" if context.flow_run.parent_task_run_id else "none"
    try:
        return "flow" if flow_run.parent_flow_run_id else "none"
    except AWAY:
        return "flow"  # so that nothing is done twice
