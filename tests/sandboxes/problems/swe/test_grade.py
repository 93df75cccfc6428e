from dataclasses import replace

import pytest

from sandboxes.backends.base import SandboxError
from sandboxes.backends.scripted import ScriptedBackend, said
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
    assert len(backend.boxes) == 4


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
    lucky, raw = await judge(problem, mend, Lucky(boxes), key="lucky")
    assert lucky["tests"]["fail_to_pass"] == {"passed": 1, "total": 1}  # the first time
    assert lucky["tests"]["again"]["same"] is False
    assert not lucky["tests"]["resolved"] and not KIND.solved(raw)


@pytest.mark.parametrize("share", ["often", "1.5", "nan"])
async def test_a_share_that_is_none_is_the_environments_failure(problem, monkeypatch, share):
    monkeypatch.setenv("LAKELOOP_GRADE_AGAIN", share)
    with pytest.raises(EnvironmentFailure, match=r"should be a share between 0 and 1: unset it"):
        await judge(problem, mend, ScriptedBackend(lambda argv, files: said()), key=share)
