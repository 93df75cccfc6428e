import socket
import sys
import time
from dataclasses import replace

import httpx
import psutil
import pytest

from lakehouse.home import Home
from tasks.serving.launch import Launch
from tasks.stack import processes
from tasks.stack.probes import NOTHING, READY, Look, Seen, foreign
from tasks.stack.services import Service
from tasks.stack.starting import StackError, Start

FOREVER = "import time; time.sleep(60)"


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path)
    yield home
    processes.stop([note.stem for note in home.pids.glob("*.json")], home, grace_s=0.2)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def web(name, port, **more):
    """A service that is a real HTTP server, up when it answers."""

    def probe(_):
        try:
            return READY if httpx.get(f"http://127.0.0.1:{port}", timeout=1).status_code == 200 else foreign("a wiki")
        except httpx.HTTPError:
            return NOTHING

    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]
    return Service(
        name,
        "a web server",
        lambda: Launch(command, {}),
        probe,
        f"http://127.0.0.1:{port}",
        f"{name.upper()}_PORT",
        **more,
    )


def script(name, code, probe=lambda _: NOTHING, **more):
    return Service(name, "a script", lambda: Launch([sys.executable, "-c", code], {}), probe, **more)


def start(home, *services, on_progress=lambda *_: None):
    return Start(home, list(services), on_progress).run()


def test_what_is_missing_is_started_and_found_running_the_next_time(home):
    service = web("one", free_port())
    (first,) = start(home, service)
    (second,) = start(home, service)
    assert first.condition == second.condition == "running"
    assert first.pid == second.pid == processes.running("one", home).pid


def test_a_right_answer_on_the_port_is_adopted_and_not_ended(home, tmp_path):
    service = web("one", free_port())
    start(home, service)
    other = Home(tmp_path / "other")
    events = []
    (state,) = start(other, service, on_progress=lambda name, event, _: events.append((name, event)))
    assert (state.condition, state.pid, events) == ("adopted", None, [("one", "adopted")])
    assert processes.stop(["one"], other) == []
    assert processes.running("one", home) is not None


WATCHED = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-m", "http.server", "--bind", "127.0.0.1", sys.argv[1]])
child.wait()
time.sleep(0.7)
"""


@pytest.mark.parametrize("victim", ["the first process", "the one that serves"])
def test_a_server_of_two_processes_one_of_which_was_killed_is_started_anew(home, victim):
    port = free_port()
    service = replace(
        web("one", port), start=lambda: Launch([sys.executable, "-c", WATCHED, str(port)], {}), deadline_s=30
    )
    (before,) = start(home, service)
    leader = psutil.Process(before.pid)
    (server,) = leader.children()
    (leader if victim == "the first process" else server).kill()
    (after,) = start(home, service)
    assert (after.condition, after.pid) == ("running", processes.running("one", home).pid)
    assert after.pid != before.pid
    assert not server.is_running()
    assert httpx.get(service.url).status_code == 200


def test_what_a_killed_worker_had_begun_goes_on(home, tmp_path):
    """The worker has no port that its children could hold: they are runs at work."""
    told, began = tmp_path / "child", "import pathlib, subprocess, sys, time\n"
    began += "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    began += f"pathlib.Path({str(told)!r}).write_text(str(child.pid))\ntime.sleep(60)"
    service = script("worker", began, probe=lambda _: READY if told.exists() and told.read_text() else NOTHING)
    (before,) = start(home, service)
    run = psutil.Process(int(told.read_text()))
    leader = psutil.Process(before.pid)
    leader.kill()
    leader.wait(10)
    (after,) = start(home, service)
    assert after.pid != before.pid
    assert run.is_running()


def test_a_taken_port_is_an_error_that_names_it_what_is_there_and_the_setting_before_anything_starts(home):
    taken = Service("two", "a web server", None, lambda _: foreign("a wiki"), "http://127.0.0.1:4200", "TWO_PORT")
    with pytest.raises(StackError, match=r"127\.0\.0\.1:4200 is taken: expected a web server, found a wiki.*TWO_PORT"):
        start(home, web("one", free_port()), taken)
    assert not home.logs.exists()


def test_a_service_that_ends_early_is_an_error_with_its_last_words_and_nothing_is_left(home):
    with pytest.raises(StackError, match=r"(?s)two ended with exit status 3 .*no such database"):
        start(home, web("one", free_port()), script("two", "print('no such database'); raise SystemExit(3)"))
    assert processes.running("one", home) is None


def test_a_service_that_is_not_up_in_time_is_an_error_with_its_last_words(home):
    mute = script("mute", f"print('loading', flush=True); {FOREVER}", deadline_s=0.7)
    with pytest.raises(StackError, match=r"(?s)mute was not up in time.*loading"):
        start(home, mute)
    assert processes.running("mute", home) is None


def test_a_service_elsewhere_that_does_not_answer_names_its_setting(home, monkeypatch):
    monkeypatch.setattr("tasks.stack.starting.ELSEWHERE_S", 0.3)
    gone = Service("engine", "an engine", None, lambda _: NOTHING, "http://gpu:8000", "LAKELOOP_ENGINE_URL")
    with pytest.raises(StackError, match=r"engine was not up in time.*http://gpu:8000.*unset LAKELOOP_ENGINE_URL"):
        start(home, gone)


def test_a_service_elsewhere_that_is_busy_is_waited_for(home):
    looks = iter([Look(Seen.SILENT, "busy")] * 2)
    engine = Service(
        "engine", "an engine", None, lambda _: next(looks, READY), "http://gpu:8000", "LAKELOOP_ENGINE_URL"
    )
    (state,) = start(home, engine)
    assert (state.condition, state.pid) == ("adopted", None)


def test_ctrl_c_leaves_nothing_behind(home):
    def interrupt(name, event, _):
        if name == "two" and event == "starting":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(home, web("one", free_port()), script("two", FOREVER), on_progress=interrupt)
    assert processes.running("one", home) is None
    assert not list(home.pids.glob("*.json"))


def test_services_start_side_by_side_and_a_dependant_after_what_it_needs(home):
    ready = lambda since: READY if time.time() > since + 0.6 else NOTHING  # noqa: E731
    order = []
    began = time.monotonic()
    start(
        home,
        script("c", FOREVER, ready, needs=("a", "b")),
        script("a", FOREVER, ready),
        script("b", FOREVER, ready),
        on_progress=lambda name, event, _: order.append((name, event)),
    )
    assert time.monotonic() - began < 0.6 * 3 + 1.5
    assert order[:2] == [("a", "starting"), ("b", "starting")]
    assert order[-2:] == [("c", "starting"), ("c", "started")]


def test_a_job_is_up_when_it_ended_well_and_is_not_begun_when_it_is_done(home, tmp_path):
    mark = tmp_path / "mark"
    code = (
        f"from pathlib import Path; p = Path({str(mark)!r}); p.write_text(p.read_text() + 'x' if p.exists() else 'x')"
    )
    job = script("job", code, lambda _: READY if mark.exists() else NOTHING, once=True)
    start(home, job)
    start(home, job)
    assert mark.read_text() == "x"


def test_a_process_of_ours_with_other_settings_says_to_take_it_down_first(home):
    start(home, web("one", port := free_port()))
    changed = Service(
        "one", "a web server", None, lambda _: foreign("an engine that serves x"), f"http://127.0.0.1:{port}"
    )
    with pytest.raises(StackError, match=r"runs with other settings.*lakeloop down"):
        start(home, changed)
