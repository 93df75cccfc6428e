"""How the services of the stack are set up once they answer."""

import pytest

from tasks.serving.engine import Engine
from tasks.serving.errors import EngineError
from tasks.serving.gate import Gate
from tasks.stack.services import plan
from tasks.stack.settings import Settings


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))


def settle(name):
    settings = Settings()
    [service] = [one for one in plan(settings) if one.name == name]
    service.settle()
    return settings.engine


@pytest.mark.parametrize("last", ["engine", "gateway"])
def test_whichever_of_engine_and_gateway_is_up_last_the_gateway_learns_what_the_engine_started_with(last, monkeypatch):
    proven = []
    monkeypatch.setattr(Engine, "served_version", lambda _: 0)
    monkeypatch.setattr(Engine, "label", lambda *_: None)
    monkeypatch.setattr(Gate, "proven", lambda _, url, version: proven.append((url, version)))
    assert (settle(last), 0) in proven


def test_a_gateway_that_is_up_before_its_engine_is_no_error(monkeypatch):
    asked, proven = [], []

    def absent(_):
        asked.append("version")
        raise EngineError("connection refused")

    monkeypatch.setattr(Engine, "served_version", absent)
    monkeypatch.setattr(Gate, "proven", lambda _, url, version: proven.append(url))
    settle("gateway")
    assert (asked, proven) == (["version"], [])  # nothing is believed of what did not answer
