"""Where a gate's exam is sat: on which engine, and who waits for whom meanwhile. Over scripted acts."""

import asyncio
from types import SimpleNamespace

import pytest

import flows.gate as gate
from lakehouse.evaluation.exam import Exam
from tasks.canary import CanaryRunning, alone
from tasks.release import async_deploying, deploying

EXAM = Exam(problems={"search": 4})


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    monkeypatch.setattr("tasks.canary.LOCKED_S", 0.2)


@pytest.fixture
def sitting():
    """Set once an exam is sat."""
    return asyncio.Event()


@pytest.fixture
def acts(monkeypatch, sitting):
    """What was done, in order; the engine serves version 4."""
    done = []

    async def sit(exam, stage, version):
        done.append(("sit", version))
        sitting.set()
        await asyncio.sleep(0.2)
        return SimpleNamespace(run_id=f"eval-{version}")

    monkeypatch.setattr(gate, "sat", lambda version, exam: SimpleNamespace(complete=False))
    monkeypatch.setattr(gate, "served", lambda: 4)
    monkeypatch.setattr(gate, "serve", lambda version: done.append(("serve", version)))
    monkeypatch.setattr(gate, "sit", sit)
    return done


async def test_what_the_engine_served_is_served_again_after_the_exam(acts):
    assert await gate.played(5, EXAM) == "eval-5"
    assert acts == [("serve", 5), ("sit", 5), ("serve", 4)]


async def test_while_a_canary_is_at_work_no_exam_is_sat_and_its_roll_back_waits_for_none(acts):
    with alone():
        with pytest.raises(CanaryRunning, match="runs a canary here already"):
            await gate.played(5, EXAM)
        with deploying():
            pass
    assert acts == []


async def test_no_canary_begins_while_an_exam_is_sat_and_other_deployments_wait_for_its_end(acts, sitting):
    exam = asyncio.create_task(gate.played(5, EXAM))
    await sitting.wait()
    with pytest.raises(CanaryRunning, match="or has an exam"), alone():
        pass
    async with async_deploying():
        assert acts[-1] == ("serve", 4)
    await exam


async def test_a_gate_that_is_cancelled_while_it_waits_for_its_turn_touches_nothing(acts):
    async with async_deploying():
        exam = asyncio.create_task(gate.played(5, EXAM))
        await asyncio.sleep(0.2)
        exam.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(exam, 2)
    assert acts == []
