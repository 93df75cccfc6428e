"""Rows against a real git repository: what becomes a problem is solved by its own patch in real boxes."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from lakehouse.records import Problem
from sandboxes.backends.scripted import ScriptedBackend
from sandboxes.problems.foreign import BadRow, Terms
from sandboxes.problems.swe.importing.imported import Order, imported, unknown_columns
from sandboxes.problems.swe.kind import KIND
from sandboxes.problems.swe.spec import read_spec

TERMS = Terms(name="mine", split="train", licence="MIT", allowed_uses=("training", "evaluation"))


def swebench(clone, **changes):
    row = {
        "instance_id": "rocks__pebble-7",
        "repo": "rocks/pebble",
        "base_commit": clone.base,
        "problem_statement": "total() is one too small\n\nIt should add all values.",
        "patch": clone.patch,
        "test_patch": clone.test_patch,
        "FAIL_TO_PASS": json.dumps([clone.fails]),
        "PASS_TO_PASS": json.dumps(clone.passes),
        "hints_text": "",
    }
    return {name: value for name, value in (row | changes).items() if value is not ...}


def swesmith(clone, **changes):
    row = {
        "instance_id": f"rocks__pebble.{clone.fixed[:8]}.lm_rewrite__abc",
        "repo": f"swesmith/rocks__pebble.{clone.fixed[:8]}",
        "patch": clone.bug,
        "FAIL_TO_PASS": [clone.fails],
        "PASS_TO_PASS": clone.passes,
        "image_name": "swebench/pebble",
    }
    return row | changes


def r2e(clone, **changes):
    row = {
        "repo_name": "pebble",
        "commit_hash": clone.fixed,
        "problem_statement": "total() is one too small",
        "parsed_commit_content": json.dumps({"old_commit_hash": f"{clone.fixed}^", "new_commit_hash": clone.fixed}),
        "execution_result_content": json.dumps({"test_file_names": ["test_1.py"], "test_file_codes": [clone.tests]}),
        "expected_output_json": json.dumps({"TestTotal.test_some": "PASSED", "test_clamp": "PASSED"}),
        "docker_image": "namanjain12/pebble_final",
    }
    return row | changes


async def run(clone, tmp_path, form, rows, backend, **options):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    order = Order(form=form, path=path, repos=clone.repos, terms=TERMS, **options)
    return [one async for one in imported(order, backend)], order


@pytest.mark.bubblewrap
async def test_a_swebench_row_becomes_a_problem_that_its_patch_solves(clone, tmp_path, boxes):
    (problem,), order = await run(clone, tmp_path, "swebench", [swebench(clone, stars=3)], boxes)
    assert isinstance(problem, Problem), problem
    assert problem.problem_id == "swe/mine/rocks__pebble-7"
    assert problem.oracle_passed and problem.null_failed
    assert problem.prompt.startswith("total() is one too small")
    assert (problem.licence, problem.allowed_uses) == ("MIT", ["training", "evaluation"])
    spec = read_spec(problem)
    assert spec.fail_to_pass == (clone.fails,)
    assert spec.pass_to_pass == tuple(clone.passes)
    assert spec.metadata == {"hints_text": "", "stars": 3}
    assert unknown_columns(order) == {"stars": 1}
    # The tests that grade, and the history, are not in the agent's tree; a module that the repair adds is the oracle's.
    assert sorted(spec.broken()) == ["pebble/__init__.py", "pebble/core.py", "setup.py", "tests/test_core.py"]
    assert b"TestTotal" not in spec.broken()["tests/test_core.py"]
    assert [call.name for call in KIND.expert(problem)] == ["run", "edit", "edit", "submit"]


@pytest.mark.bubblewrap
async def test_swesmith_and_r2e_rows_become_problems(clone, tmp_path, boxes):
    (smith,), _ = await run(clone, tmp_path, "swesmith", [swesmith(clone)], boxes)
    assert isinstance(smith, Problem), smith
    assert smith.prompt == "rocks__pebble\nFails: assert total([1, 2, 3]) == 6 -> 5 == 6"  # no statement: the behaviour
    assert read_spec(smith).metadata == {"image_name": "swebench/pebble"}
    (gym,), _ = await run(clone, tmp_path, "r2e", [r2e(clone)], boxes)
    assert isinstance(gym, Problem), gym
    spec = read_spec(gym)
    assert spec.fail_to_pass == ("r2e_tests/test_1.py::TestTotal::test_some",)
    assert spec.pass_to_pass == ("r2e_tests/test_1.py::test_clamp",)  # the other one is not among the expected
    assert "r2e_tests/test_1.py" not in spec.broken()


@pytest.mark.bubblewrap
async def test_a_row_whose_tests_say_something_else_is_refused(clone, tmp_path, boxes):
    rows = [
        swebench(clone, FAIL_TO_PASS=[clone.fails, clone.passes[0]]),
        swebench(clone, FAIL_TO_PASS=["tests/test_core.py::test_gone"]),
    ]
    found, _ = await run(clone, tmp_path, "swebench", rows, boxes)
    assert found[0].reason == f"a FAIL_TO_PASS test passes without the solution: {clone.passes[0]}"
    assert "rocks__pebble-7 was there before" in found[1].reason


async def test_bad_rows_are_told_by_line_and_reason_and_the_rest_goes_on(clone, tmp_path):
    rows = [
        "{broken\n",
        '"text"\n',
        swebench(clone, base_commit=..., patch=...),
        swebench(clone, repo="rocks/gone"),
        swebench(clone, base_commit="0" * 40),
        swebench(clone, patch=clone.patch.replace("sum(values)", "sum(others)")),
        swebench(clone, FAIL_TO_PASS="[broken"),
        swebench(clone, FAIL_TO_PASS=["test_total (tests.Core)"]),
        swebench(clone, FAIL_TO_PASS=[], PASS_TO_PASS=[]),
        swebench(clone, patch=clone.patch.replace("b/pebble/exact.py", "b/../exact.py")),
    ]
    found, _ = await run(clone, tmp_path, "swebench", rows, ScriptedBackend())
    assert [one.line for one in found] == list(range(1, 11))
    reasons = [one.reason for one in found]
    assert reasons[0].startswith("not JSON: ") and reasons[1] == "str, not an object"
    assert reasons[2] == "no swebench row: base_commit: field required; patch: field required"
    assert reasons[3].startswith(f"no clone of rocks/gone in {clone.repos}: clone it there as rocks__gone")
    assert "has no commit 0000" in reasons[4]
    assert reasons[5].startswith("patch does not apply: ")
    assert "FAIL_TO_PASS" in reasons[6]
    assert "'test_total (tests.Core)' is no pytest node id" in reasons[7]
    assert "names no test" in reasons[8]
    assert "patch does not apply" in reasons[9]
    assert found[3].instance == "rocks__pebble-7"


async def test_unknown_columns_are_refused_where_that_is_asked_for(clone, tmp_path):
    (found,), _ = await run(clone, tmp_path, "swebench", [swebench(clone, stars=3)], ScriptedBackend(), strict=True)
    assert found.reason == "columns that swebench does not have: stars"


async def test_parquet_and_arrays_are_read_like_lines(clone, tmp_path):
    rows = [swebench(clone, repo="rocks/gone"), swebench(clone, repo="rocks/lost", instance_id="other")]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    for name in ("rows.parquet", "rows.json"):
        order = Order(form="swebench", path=tmp_path / name, repos=clone.repos, terms=TERMS)
        found = [one async for one in imported(order, ScriptedBackend())]
        assert [(one.line, one.instance) for one in found] == [(1, "rocks__pebble-7"), (2, "other")]
        assert all("no clone of" in one.reason for one in found)


@pytest.mark.parametrize(
    "name, content, said",
    [
        ("rows.csv", "a,b\n", "rows are read from .json, .jsonl and .parquet"),
        ("rows.json", "{}", "holds no array of rows"),
        ("rows.parquet", "PAR", "cannot be read"),
        ("absent.jsonl", None, "there is no such file"),
    ],
)
async def test_a_file_that_cannot_be_read_says_what_can(clone, tmp_path, name, content, said):
    if content is not None:
        (tmp_path / name).write_text(content)
    order = Order(form="swebench", path=tmp_path / name, repos=clone.repos, terms=TERMS)
    with pytest.raises(BadRow, match=said):
        _ = [one async for one in imported(order, ScriptedBackend())]
