"""Where a gate's exam is sat: on which engine, and who waits for whom meanwhile. Over scripted acts."""

import asyncio
from types import SimpleNamespace

import pytest

import flows.gate as gate
from lakehouse.evaluation.exam import Exam
from tasks.canary import CanaryRunning, alone
from tasks.gate import spare
from tasks.release import async_deploying, deploying
from tasks.serving.errors import ServingError
from tasks.serving.gate import EngineState

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

    async def sit(exam, stage, version, *, pinned):
        assert pinned
        done.append(("sit", version))
        sitting.set()
        await asyncio.sleep(0.2)
        return SimpleNamespace(run_id=f"eval-{version}")

    monkeypatch.setattr(gate, "sat", lambda version, exam: SimpleNamespace(complete=False))
    monkeypatch.setattr(gate, "served", lambda: 4)
    monkeypatch.setattr(gate, "spare", lambda before: None)
    monkeypatch.setattr(gate, "serve", lambda version, **how: done.append(("serve", version, *how.values())))
    monkeypatch.setattr(gate, "keep_sessions", lambda before, version: done.append(("keep", before, version)))
    monkeypatch.setattr(gate, "stop_splitting", lambda: done.append("unsplit"))
    monkeypatch.setattr(gate, "sit", sit)
    return done


async def test_what_the_engine_served_is_served_again_after_the_exam(acts):
    assert await gate.played(5, EXAM) == "eval-5"
    assert acts == [("serve", 5), ("sit", 5), ("serve", 4)]


ON_B = [("keep", 4, 5), ("serve", 5, "wait", ["http://b"]), ("sit", 5), ("serve", 4, ["http://b"]), "unsplit"]


async def test_with_an_engine_to_spare_only_that_one_serves_what_is_examined_and_only_the_exam_meets_it(
    acts, monkeypatch
):
    monkeypatch.setattr(gate, "spare", lambda before: "http://b" if before == 4 else None)
    assert await gate.played(5, EXAM) == "eval-5"
    assert acts == ON_B


async def test_an_exam_that_fails_gives_the_engine_back_and_ends_the_split(acts, monkeypatch):
    async def broken(*_, **__):
        raise OSError("the lake is away")

    monkeypatch.setattr(gate, "spare", lambda _: "http://b")
    monkeypatch.setattr(gate, "sit", broken)
    with pytest.raises(OSError, match="away"):
        await gate.played(5, EXAM)
    assert acts == [one for one in ON_B if one != ("sit", 5)]


async def test_an_engine_that_cannot_be_given_back_is_still_kept_from_other_sessions(acts, monkeypatch):
    def serve(version, **_):
        if version == 4:
            raise ServingError("it does not answer")

    monkeypatch.setattr(gate, "spare", lambda _: "http://b")
    monkeypatch.setattr(gate, "serve", serve)
    with pytest.raises(ServingError):
        await gate.played(5, EXAM)
    assert acts == [("keep", 4, 5), ("sit", 5)]


@pytest.mark.parametrize(
    ("engines", "found"),
    [
        ({"http://a": "4"}, None),
        ({"http://a": "4", "http://b": "4", "http://c": "4"}, "http://c"),
        ({"http://a": "4", "http://b": "4", "http://c": "3"}, "http://b"),
        ({"http://b": "4", "http://a": "-1"}, None),  # who would answer meanwhile?
    ],
)
def test_an_engine_is_to_spare_where_the_stacks_own_serves_the_same_version(monkeypatch, engines, found):
    monkeypatch.setenv("LAKELOOP_ENGINE_URL", "http://a")
    states = {url: EngineState("serving", version, None) for url, version in engines.items()}
    monkeypatch.setattr("tasks.gate.Gate.states", lambda _: states)
    assert spare.fn(4) == found


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
