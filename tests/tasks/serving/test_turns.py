"""One deployment at a time."""

import multiprocessing
import os
import signal
import threading
import time

import pytest

from tasks.serving.errors import ServingError
from tasks.serving.turns import turn


def hold(lock, held, let_go):
    with turn(lock):
        held.set()
        let_go.wait(20)


@pytest.fixture
def holder(tmp_path):
    """Another process in its turn; (process, event that ends the turn)."""
    spawn = multiprocessing.get_context("spawn")
    held, let_go = spawn.Event(), spawn.Event()
    process = spawn.Process(target=hold, args=(tmp_path / "lock", held, let_go))
    process.start()
    assert held.wait(20)
    yield process, let_go
    if process.is_alive():  # a killed one may hold the event's own lock
        let_go.set()
    process.join(20)


def test_a_deployment_waits_for_the_one_before_it(tmp_path, holder):
    _, let_go = holder
    threading.Timer(0.5, let_go.set).start()
    began = time.monotonic()
    with turn(tmp_path / "lock"):
        assert time.monotonic() - began > 0.3


def test_a_turn_that_does_not_end_is_named_with_its_process(tmp_path, holder):
    process, _ = holder
    with pytest.raises(ServingError, match=f"process {process.pid} has been deploying"), turn(tmp_path / "lock", 0.3):
        pass


def test_a_killed_process_holds_nothing(tmp_path, holder):
    process, _ = holder
    os.kill(process.pid, signal.SIGKILL)
    process.join(20)
    with turn(tmp_path / "lock", 5):
        assert (tmp_path / "lock").read_text() == str(os.getpid())


def test_turns_of_one_process_exclude_each_other_too(tmp_path):
    with turn(tmp_path / "lock"), pytest.raises(ServingError), turn(tmp_path / "lock", 0.3):
        pass
