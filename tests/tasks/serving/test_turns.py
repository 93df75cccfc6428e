"""One deployment at a time."""

import asyncio
import multiprocessing
import os
import signal
import threading
import time

import pytest

from tasks.serving import turns
from tasks.serving.errors import ServingError
from tasks.serving.turns import async_turn, turn


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


def test_whoever_waits_says_for_whom_and_how_long(tmp_path, holder, monkeypatch, capsys):
    process, let_go = holder
    monkeypatch.setattr(turns, "TOLD_EVERY_S", 0.3)
    threading.Timer(1.0, let_go.set).start()
    with turn(tmp_path / "lock"):
        said = capsys.readouterr().out.splitlines()
    assert 2 <= len(said) <= 5
    assert all(f"waiting for process {process.pid}, which deploys or has an exam sat" in line for line in said)


def test_an_exam_of_hours_is_waited_for(tmp_path, holder, monkeypatch):
    """The clock of who waits runs ahead: eight hours pass before the holder lets go."""
    _, let_go = holder
    threading.Timer(1.0, let_go.set).start()
    began = time.monotonic()
    monkeypatch.setattr(turns.time, "monotonic", lambda real=time.monotonic: began + (real() - began) * 8 * 3600)
    with turn(tmp_path / "lock"):
        assert let_go.is_set()
        assert time.monotonic() - began > 6 * 3600


async def test_in_an_event_loop_the_wait_can_be_cancelled_and_leaves_the_lock_alone(tmp_path, holder):
    _, let_go = holder

    async def wait():
        async with async_turn(tmp_path / "lock"):
            pass

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0.3)
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(waiting, 2)
    let_go.set()
    await asyncio.wait_for(wait(), 20)
    with turn(tmp_path / "lock", 5):
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
