"""Who acts, for the audit: the user, and the flow run where there is one."""

from prefect.runtime import flow_run

from lakehouse.governance.audit import user


def actor() -> str:
    """ "alice", or "alice, flow run 5a0c... (maintain)" inside a flow."""
    run = flow_run.get_id()
    return f"{user()}, flow run {run} ({flow_run.get_flow_name()})" if run else user()
