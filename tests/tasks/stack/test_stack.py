"""The stack with real Prefect and MLflow servers, a gateway, a worker and the watcher, around an adopted engine."""

import socket
import time

import httpx
import psutil
import pytest

from tasks.registry.versions import Lineage, Registry
from tasks.serving.engine import Engine
from tasks.stack import Settings, StackError, down, processes, status, up

pytestmark = [pytest.mark.stack, pytest.mark.engine, pytest.mark.timeout(420)]

OURS = {"prefect", "mlflow", "gateway", "worker", "watcher"}


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="module")
def settings(engine_url, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        for name in Settings.model_fields:
            patch.delenv(f"LAKELOOP_{name.upper()}", raising=False)
        patch.setenv("LAKELOOP_HOME", str(tmp_path_factory.mktemp("home")))
        with Engine(engine_url) as engine:
            label, model = engine.served_version(), engine.models()[0]
        prefect, mlflow, gateway = free_ports(3)
        settings = Settings(
            model=model, engine_url=engine_url, prefect_port=prefect, mlflow_port=mlflow, gateway_port=gateway
        )
        yield settings
        down(settings)
        with Engine(engine_url) as engine:
            engine.label(label)


@pytest.fixture(scope="module")
def started(settings):
    return {state.name: state for state in up(settings)}


def test_up_starts_what_is_missing_and_adopts_the_engine(started, settings):
    assert {name: state.condition for name, state in started.items()} == {
        "engine": "adopted",
        **dict.fromkeys(OURS | {"deployments"}, "running"),
    }
    assert started["engine"].pid is None
    assert {state.name: state.condition for state in status(settings)} == {
        "engine": "adopted",
        **dict.fromkeys(OURS, "running"),
    }
    assert max(state.seconds for state in started.values()) < 120


def test_every_server_listens_on_loopback_only(started):
    for name in ("prefect", "mlflow", "gateway"):
        family = [leader := psutil.Process(started[name].pid), *leader.children(recursive=True)]
        listening = [c for one in family for c in one.net_connections() if c.status == psutil.CONN_LISTEN]
        assert {connection.laddr.ip for connection in listening} == {"127.0.0.1"}, name


def test_up_again_keeps_every_process_and_is_quick(started, settings):
    events = []
    again = {state.name: state for state in up(settings, lambda name, event, _: events.append(event))}
    assert {name: state.pid for name, state in again.items()} == {name: state.pid for name, state in started.items()}
    assert set(events) == {"running", "adopted"}


def test_the_deployments_of_prefect_yaml_are_there_and_their_schedules_are_paused(started, settings):
    found = httpx.post(f"{settings.prefect_url}/deployments/filter", json={}, timeout=30).raise_for_status().json()
    assert {"collect", "label", "train", "release", "improve", "maintain", "reconcile"} <= {
        one["name"] for one in found
    }
    assert not [schedule for one in found for schedule in one["schedules"] if schedule["active"]]


def test_another_home_does_not_take_over_this_stack(started, settings, tmp_path, monkeypatch):
    first = settings.home.root
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    with pytest.raises(StackError, match=f"is taken: .*the Prefect server of the home folder {first}"):
        up(settings)
    elsewhere = settings.model_copy(update={"prefect_port": free_ports(1)[0]})
    with pytest.raises(StackError, match=r"is taken: expected this home's gateway, found a gateway of another home"):
        up(elsewhere)
    assert down(settings) == []


def test_moving_the_alias_redeploys(started, settings):
    registry = Registry(settings.mlflow_url)
    with Engine(settings.engine) as engine:
        folder, before = engine.folder(), engine.served_version()
        version = registry.register(settings.model_name, folder, lineage=Lineage(stage="base"))
        while version == before:  # the label it happens to have
            stage = Lineage(stage=f"base-{version}")
            version = registry.register(settings.model_name, folder, lineage=stage)
        registry.promote(settings.model_name, version)
        run = ended("reconcile", settings, deadline_s=150)
        assert run["state_type"] == "COMPLETED", processes.tail("worker", settings.home)
        assert engine.served_version() == version


def test_down_ends_everything_it_started_and_nothing_else(started, settings):
    pids = [state.pid for state in started.values() if state.pid]
    assert set(down(settings)) == OURS
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert not [process for process in psutil.process_iter(["environ"]) if _of(process, settings)]
    assert {state.name: state.condition for state in status(settings)} == {
        "engine": "adopted",
        **dict.fromkeys(OURS, "down"),
    }


def ended(flow, settings, *, deadline_s):
    """The first run of `flow` that has ended."""
    deadline = time.monotonic() + deadline_s
    body = {"flows": {"name": {"any_": [flow]}}}
    while True:
        found = httpx.post(f"{settings.prefect_url}/flow_runs/filter", json=body, timeout=30).raise_for_status().json()
        for run in found:
            if run["state_type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"):
                return run
        assert time.monotonic() < deadline, f"no run of {flow} ended: {processes.tail('worker', settings.home)}"
        time.sleep(0.5)


def _of(process, settings):
    return str((process.info["environ"] or {}).get(processes.MARK, "")).startswith(f"{settings.home.root}:")
