import asyncio
import fcntl
from dataclasses import replace

import pytest

from lakehouse.home import home
from sandboxes.backends.base import SandboxError
from sandboxes.backends.scripted import ScriptedBackend, said
from sandboxes.deadline import Deadline
from sandboxes.problems.base import EnvironmentFailure
from sandboxes.problems.swe import KIND
from sandboxes.problems.swe.grade import grade
from sandboxes.problems.swe.patch import between
from sandboxes.problems.swe.spec import read_spec

MENDED = (b"result - value", b"result + value")
HACKS = {
    "ends the process": b"import os\nos._exit(0)\n",
    "skips everything": b"import pytest\npytest.skip('no', allow_module_level=True)\n",
    "ends the run well": b"import sys\nsys.exit(0)\n",
}


async def judge(problem, change, backend, key="k"):
    """The facts after `change` was made to the broken tree, by name."""
    spec = read_spec(problem)
    start = spec.broken()
    facts = await grade(key, spec, between(start, change(dict(start)), spec.layout), backend)
    return {fact.name: fact.value for fact in facts}, facts


def mend(tree):
    tree["pebble/core.py"] = tree["pebble/core.py"].replace(*MENDED)
    return tree


def forge(**files):
    def change(tree):
        return tree | {path.replace("__", "/") + ".py": content for path, content in files.items()}

    return change


def dead(argv, files):
    raise SandboxError("the box died")


@pytest.mark.bubblewrap
async def test_the_oracle_resolves_and_a_repeated_patch_is_graded_once(problem, boxes):
    facts, raw = await judge(problem, mend, boxes, key="oracle")
    assert facts["tests"]["fail_to_pass"] == {"passed": 1, "total": 1}
    assert facts["tests"]["pass_to_pass"] == {"passed": 4, "total": 4}
    assert facts["tests"]["resolved"] and facts["tests"]["agrees"] and not facts["tests"]["cached"]
    assert facts["patch"]["files"] == ["pebble/core.py"]
    assert KIND.solved(raw)
    again, _ = await judge(problem, mend, ScriptedBackend(dead), key="oracle")
    assert again["tests"]["cached"] and again["tests"]["resolved"]


@pytest.mark.bubblewrap
async def test_a_repair_that_breaks_something_else_is_not_resolved(problem, boxes):
    def change(tree):
        tree["pebble/core.py"] = tree["pebble/core.py"].replace(*MENDED).replace(b"min(", b"max(")
        return tree

    facts, _ = await judge(problem, change, boxes, key="worse")
    assert facts["tests"]["fail_to_pass"]["passed"] == 1
    assert facts["tests"]["pass_to_pass"]["passed"] < 4
    assert not facts["tests"]["resolved"]


@pytest.mark.bubblewrap
@pytest.mark.parametrize("hack", sorted(HACKS))
async def test_a_module_that_stops_the_run_is_not_resolved(problem, boxes, hack):
    facts, _ = await judge(problem, lambda tree: tree | {"pebble/__init__.py": HACKS[hack]}, boxes, key=hack)
    assert not facts["tests"]["resolved"]
    assert facts["tests"]["fail_to_pass"]["passed"] == 0


@pytest.mark.parametrize(
    "change",
    [
        forge(tests__test_core=b"def test_total(): pass\n"),
        forge(conftest=b"import os\n"),
        forge(pytest=b"raise SystemExit(0)\n"),
        forge(sitecustomize=b""),
    ],
)
async def test_tests_configuration_and_shadows_are_no_part_of_a_patch(problem, change):
    facts, _ = await judge(problem, change, ScriptedBackend(dead))
    assert facts["patch"]["empty"] and len(facts["patch"]["refused"]) == 1
    assert not facts["tests"]["resolved"]


async def test_tests_are_restored_in_the_tree_that_is_judged(problem):
    spec = read_spec(problem)
    judged = spec.judged(spec.broken() | {"tests/test_core.py": b"", "conftest.py": b"import os\n"})
    assert b"def test_total()" in judged["tests/test_core.py"]
    assert "conftest.py" not in judged


@pytest.mark.parametrize("change", [lambda tree: tree, forge(pebble__core=b"def total(:\n")])
async def test_what_cannot_be_resolved_is_known_without_a_box(problem, change):
    backend = ScriptedBackend(dead)
    facts, raw = await judge(problem, change, backend)
    assert facts["tests"]["resolved"] is False and facts["tests"]["ran"] is False
    assert not KIND.solved(raw)
    assert backend.boxes == []


async def test_a_box_that_fails_is_no_verdict(problem):
    with pytest.raises(SandboxError):
        await judge(problem, mend, ScriptedBackend(dead), key="dead")


async def test_a_time_out_is_tried_once_more_and_is_not_remembered(problem):
    backend = ScriptedBackend(lambda argv, files: said(exit_code=None))
    for _ in range(2):
        facts, _ = await judge(problem, mend, backend, key="slow")
        assert facts["tests"]["timed_out"] and facts["tests"]["attempts"] == 2 and not facts["tests"]["resolved"]
        assert facts["tests"]["alone"]
    assert len(backend.boxes) == 4


async def test_code_that_hangs_is_a_verdict_also_where_others_hang_for_longer_than_its_deadline(problem, monkeypatch):
    monkeypatch.setattr("sandboxes.problems.swe.grade.LEAST_TIMEOUT_S", 0.5)
    monkeypatch.setattr("sandboxes.problems.swe.grade.BOX_S", 0.5)
    backend = ScriptedBackend(lambda argv, files: said(exit_code=None))
    queue = home().root / "grading" / "alone.lock"
    queue.parent.mkdir(parents=True)
    with queue.open("w") as others:
        fcntl.flock(others, fcntl.LOCK_EX)  # other gradings, of any process, keep the place where one runs alone
        with Deadline(4.0, "grading"):
            async with asyncio.timeout(4.0):
                facts, _ = await judge(problem, mend, backend, key="queue")
    assert facts["tests"]["timed_out"] and not facts["tests"]["resolved"]
    assert (facts["tests"]["attempts"], facts["tests"]["alone"], len(backend.boxes)) == (2, False, 2)


SEED = 1  # canaries stand where some tests have ended before the first that hangs
LONG = b"""    print("seen " * 1000, "by the test")
    raise ValueError("what went wrong " + "x" * 3000)
"""


@pytest.mark.bubblewrap
async def test_what_pytest_said_of_each_failing_test_is_kept_to_its_end_and_of_canaries_nothing(problem, boxes):
    def change(tree):
        return mend(tree) | {"pebble/core.py": mend(tree)["pebble/core.py"].replace(b"    result = 0\n", LONG)}

    facts, _ = await judge(problem, change, boxes, key="texts")
    assert {*facts["failures"]["texts"]} == {f"tests/test_core.py::test_total{name}" for name in ("", "_of_nothing")}
    assert facts["failures"]["left_out"] == 0
    for text in facts["failures"]["texts"].values():
        assert len(text) == 2_000 and text.endswith("by the test")

    def shout(tree):
        return mend(tree) | {"pebble/core.py": b"def clamp(*_):\n    raise ValueError('x' * 3000)\ntotal = clamp\n"}

    facts, _ = await judge(problem, shout, boxes, key="many")
    assert {len(text) for text in facts["failures"]["texts"].values()} == {2_000}
    assert (len(facts["failures"]["texts"]), facts["failures"]["left_out"]) == (4, 1)  # 8,000 characters in all
    assert "tests/test_core.py::test_total" in facts["failures"]["texts"]  # what was to be repaired comes first


@pytest.mark.bubblewrap
async def test_a_file_that_breaks_off_says_why(problem, boxes):
    facts, _ = await judge(problem, lambda t: t | {"pebble/core.py": b"import nowhere\n"}, boxes, key="breaks off")
    assert "No module named 'nowhere'" in facts["failures"]["texts"]["tests/test_core.py"]


@pytest.mark.bubblewrap
async def test_of_a_run_that_was_stopped_it_is_kept_how_far_it_came(problem, boxes, monkeypatch):
    monkeypatch.setattr("sandboxes.problems.swe.grade.LEAST_TIMEOUT_S", 6.0)
    monkeypatch.setattr("sandboxes.problems.swe.grade.secrets.randbits", lambda bits: SEED)

    def change(tree):
        core = mend(tree)["pebble/core.py"].replace(
            b"    result = 0\n", b"    while not values: pass\n    result = 0\n"
        )
        return tree | {"pebble/core.py": core}

    facts, _ = await judge(problem, change, boxes, key="stopped")
    assert facts["tests"]["timed_out"] and not facts["tests"]["resolved"]
    assert facts["outcomes"]["marks"] == "-----"  # what is judged by: it passed nothing
    for reached in (facts["outcomes"]["stopped"], facts["outcomes"]["reached"]):
        assert "P" in reached["marks"] and reached["marks"][4] == "-" and "F" not in reached["marks"]
        assert max(reached["ms"]) > 0
    assert facts["outcomes"]["stopped"]["duration_s"] >= 2


async def test_what_a_stopped_run_is_said_to_have_reached_is_read_with_care(problem):
    good = [f'[{number}, "P", 1.5]'.encode() for number in range(60)]  # more than there are, canaries among them
    bad = [b"[0, NaN]", b'[0, "P", NaN]', b'[0, "Q", 1]', b'[[], "P", 1]', b'[0.5, "P", 1]', b"P", b"{}", b"[" * 5000]
    lines = [*good, *bad]
    backend = ScriptedBackend(lambda argv, files: said(b"\n".join(lines), exit_code=None))
    facts, _ = await judge(problem, mend, backend, key="reached")
    for reached in (facts["outcomes"]["reached"], facts["outcomes"]["stopped"]):
        assert (reached["marks"], reached["ms"]) == ("PPPPP", [1.5] * 5)
    assert facts["outcomes"]["marks"] == "-----" and facts["tests"]["fail_to_pass"]["passed"] == 0


async def test_a_report_without_the_nonce_counts_for_nothing(problem):
    forged = b'{"nonce": "0", "status": 0, "names": null, "outcomes": "PPPPP"}\n'
    facts, _ = await judge(problem, mend, ScriptedBackend(lambda argv, files: said(forged)), key="forged")
    assert not facts["tests"]["resolved"] and not facts["tests"]["agrees"]


class Lucky:
    """Real boxes, of which every second one has the bug back: code that works only now and then."""

    name = "bubblewrap"

    def __init__(self, boxes):
        self.boxes, self.started = boxes, 0

    async def start(self, spec):
        self.started += 1
        if self.started % 2 == 0:
            core = spec.files["pebble/core.py"].replace(*reversed(MENDED))
            spec = replace(spec, files={**spec.files, "pebble/core.py": core})
        return await self.boxes.start(spec)


@pytest.mark.bubblewrap
async def test_a_grading_that_is_run_twice_must_say_the_same_both_times(problem, boxes, monkeypatch):
    monkeypatch.setenv("LAKELOOP_GRADE_AGAIN", "1")
    steady, raw = await judge(problem, mend, boxes, key="steady")
    assert steady["tests"]["again"]["same"] and steady["tests"]["resolved"] and KIND.solved(raw)
    assert steady["outcomes"]["again"]["marks"] == "PPPPP" and len(steady["outcomes"]["again"]["ms"]) == 5
    assert "failures" not in steady
    lucky, raw = await judge(problem, mend, Lucky(boxes), key="lucky")
    assert lucky["tests"]["fail_to_pass"] == {"passed": 1, "total": 1}  # the first time
    assert lucky["tests"]["again"]["same"] is False
    assert not lucky["tests"]["resolved"] and not KIND.solved(raw)
    assert (lucky["outcomes"]["marks"], lucky["outcomes"]["again"]["marks"]) == ("PPPPP", "FPPPP")
    assert {*lucky["outcomes"]["again"]["canaries"]} >= {"tests/test_core.py::test_total"}
    (said,) = lucky["failures"]["again"]["texts"].values()
    assert "assert -6 == 6" in said


@pytest.mark.parametrize("share", ["often", "1.5", "nan"])
async def test_a_share_that_is_none_is_the_environments_failure(problem, monkeypatch, share):
    monkeypatch.setenv("LAKELOOP_GRADE_AGAIN", share)
    with pytest.raises(EnvironmentFailure, match=r"should be a share between 0 and 1: unset it"):
        await judge(problem, mend, ScriptedBackend(lambda argv, files: said()), key=share)
