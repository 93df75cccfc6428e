import json
import subprocess
import sys
import time

import psutil
import pytest

from lakehouse.home import Home
from tasks.stack import processes

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path)
    yield home
    processes.stop([note.stem for note in home.pids.glob("*.json")], home, grace_s=0.2)


def start(home, name, command):
    return processes.start(name, command, home=home, environment={"GREETING": "hello"}, cwd=home.root)


def test_a_started_process_is_found_again_and_stopped(home):
    process = start(home, "one", SLEEP)
    assert processes.running("one", home).pid == process.pid
    assert processes.stop(["one"], home) == ["one"]
    assert processes.running("one", home) is None
    assert not psutil.pid_exists(process.pid)
    assert not list(home.pids.glob("*"))


def test_output_goes_to_the_log_of_its_name(home):
    start(home, "talk", [sys.executable, "-c", "import os; print(os.environ['GREETING'])"]).wait(10)
    assert processes.tail("talk", home, lines=1) == "hello"


def test_a_process_id_used_again_is_not_ours(home):
    stranger = subprocess.Popen(SLEEP, start_new_session=True)
    try:
        home.pids.mkdir(parents=True)
        (home.pids / "one.json").write_text(json.dumps({"pid": stranger.pid, "started": time.time() - 3600}))
        assert processes.running("one", home) is None
        assert processes.stop(["one"], home) == []
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_process_that_ignores_the_request_to_end_is_killed_at_the_deadline(home):
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    process = start(home, "deaf", [sys.executable, "-c", deaf])
    while processes.tail("deaf", home, lines=1) != "deaf":
        time.sleep(0.02)
    began = time.monotonic()
    assert processes.stop(["deaf"], home, grace_s=0.3) == ["deaf"]
    assert time.monotonic() - began < 5
    assert not psutil.pid_exists(process.pid)


def test_what_a_killed_leader_left_in_a_session_of_its_own_is_stopped_too(home):
    code = "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], "
    code += "start_new_session=True); print(p.pid, flush=True); time.sleep(60)"
    leader = start(home, "leader", [sys.executable, "-c", code])
    while not processes.tail("leader", home, lines=1).isdigit():
        time.sleep(0.02)
    child = int(processes.tail("leader", home, lines=1))
    leader.kill()
    leader.wait()
    assert processes.stop(["leader"], home) == ["leader"]
    assert not psutil.pid_exists(child)


def test_stopping_what_never_ran_is_no_error(home):
    assert processes.stop(["nothing"], home) == []
