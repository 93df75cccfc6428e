"""Who hears of what happened: a part of a larger run is told as such, also while Prefect's server is away."""

from types import SimpleNamespace
from uuid import uuid4

import httpx
import pytest

from tasks import events


class Away:
    """Prefect's `flow_run` where the server does not answer."""

    id = str(uuid4())

    @property
    def parent_flow_run_id(self):
        raise httpx.ConnectError("refused")


@pytest.fixture
def told(monkeypatch):
    heard = []
    monkeypatch.setattr(events, "flow_run", Away())
    monkeypatch.setattr(events, "emit_event", lambda event, about, **_: heard.append((event, about["lakeloop.within"])))
    return heard


@pytest.mark.parametrize(("parent", "within"), [(uuid4(), "flow"), (None, "none")])
def test_a_run_knows_whether_it_is_a_part_without_asking_the_server(told, monkeypatch, parent, within):
    context = SimpleNamespace(flow_run=SimpleNamespace(parent_task_run_id=parent))
    monkeypatch.setattr(events, "FlowRunContext", SimpleNamespace(get=lambda: context))
    events.tell("run.landed", "run.r", {})
    assert told == [("lakeloop.run.landed", within)]


def test_where_it_cannot_be_known_nothing_is_started_by_it(told):
    events.tell("run.landed", "run.r", {})
    assert told == [("lakeloop.run.landed", "flow")]
