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

from prefect.events import emit_event
from prefect.runtime import flow_run


def tell(event: str, resource: str, payload: dict[str, Any], **labels: str) -> None:
    """Emit `lakeloop.EVENT` about `lakeloop.RESOURCE`; labels are written `purpose="train"`. Outside of a flow run nobody hears."""
    if not flow_run.id:
        return
    about = {
        "prefect.resource.id": f"lakeloop.{resource}",
        "lakeloop.within": "flow" if flow_run.parent_flow_run_id else "none",
        **{f"lakeloop.{name}": value for name, value in labels.items()},
    }
    related = [{"prefect.resource.id": f"prefect.flow-run.{flow_run.id}", "prefect.resource.role": "flow-run"}]
    emit_event(f"lakeloop.{event}", about, related=related, payload=payload)
