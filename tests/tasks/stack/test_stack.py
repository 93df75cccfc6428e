"""The stack with real Prefect and MLflow servers, a gateway, a worker and the watcher, around an adopted engine."""

from pathlib import Path

import httpx
import psutil
import pytest

from tasks.stack import StackError, down, processes, status, up

pytestmark = [pytest.mark.stack, pytest.mark.engine, pytest.mark.timeout(420)]

OURS = {"prefect", "mlflow", "gateway", "worker", "watcher"}


@pytest.fixture(scope="module")
def settings(stack):
    return stack


@pytest.fixture(scope="module")
def started(settings):
    """The states `up` gives. Where an earlier module brought the stack up, it was not down since."""
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


def test_every_server_listens_on_loopback_only(started):
    for name in ("prefect", "mlflow", "gateway"):
        family = [leader := psutil.Process(started[name].pid), *leader.children(recursive=True)]
        listening = [c for one in family for c in one.net_connections() if c.status == psutil.CONN_LISTEN]
        assert {connection.laddr.ip for connection in listening} == {"127.0.0.1"}, name


def test_no_database_url_is_on_a_command_line_where_every_user_could_read_its_password(started, settings):
    databases = {"prefect": settings.prefect_database_url, "mlflow": settings.mlflow_database_url}
    for state in started.values():
        if state.pid is not None:
            leader = psutil.Process(state.pid)
            for process in [leader, *leader.children(recursive=True)]:
                line = Path(f"/proc/{process.pid}/cmdline").read_text()
                assert line, "no command line"
                assert not [url for url in databases.values() if url in line], line
            assert not [
                url for url in databases.values() if url in processes.tail(state.name, settings.home, lines=10_000)
            ]
    for name in databases:  # and they are used all the same
        assert (settings.home.root / name / f"{name}.db").stat().st_size > 0


def test_up_again_keeps_every_process_and_is_quick(started, settings):
    events = []
    again = {state.name: state for state in up(settings, lambda name, event, _: events.append(event))}
    assert {name: state.pid for name, state in again.items()} == {name: state.pid for name, state in started.items()}
    assert set(events) == {"running", "adopted"}


@pytest.mark.bubblewrap
def test_up_removes_boxes_past_their_lease_and_says_so(started, settings, boxes):
    late, early = boxes
    events = []
    up(settings, lambda name, event, _: events.append((name, event)))
    assert ("boxes", "removed") in events
    assert not any(folder.exists() for folder in late.folders)
    assert all(folder.exists() for folder in early.folders)


def test_the_deployments_of_prefect_yaml_are_there_and_their_schedules_are_paused(started, settings):
    found = httpx.post(f"{settings.prefect_url}/deployments/filter", json={}, timeout=30).raise_for_status().json()
    assert {"collect", "label", "train", "release", "improve", "maintain", "reconcile"} <= {
        one["name"] for one in found
    }
    assert not [schedule for one in found for schedule in one["schedules"] if schedule["active"]]


def test_another_home_does_not_take_over_this_stack(started, settings, tmp_path, monkeypatch, free_ports):
    first = settings.home.root
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    with pytest.raises(StackError, match=f"is taken: .*the Prefect server of the home folder {first}"):
        up(settings)
    elsewhere = settings.model_copy(update={"prefect_port": free_ports(1)[0]})
    with pytest.raises(StackError, match=r"is taken: expected this home's gateway, found a gateway of another home"):
        up(elsewhere)
    assert down(settings) == []


def test_down_ends_everything_it_started_and_nothing_else(started, settings):
    pids = [state.pid for state in started.values() if state.pid]
    assert set(down(settings)) == OURS
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert not [process for process in psutil.process_iter(["environ"]) if _of(process, settings)]
    assert {state.name: state.condition for state in status(settings)} == {
        "engine": "adopted",
        **dict.fromkeys(OURS, "down"),
    }


def _of(process, settings):
    return str((process.info["environ"] or {}).get(processes.MARK, "")).startswith(f"{settings.home.root}:")
