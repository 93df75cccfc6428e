"""Problems of others and of one's own, from the command line."""

import json
import shutil
from pathlib import Path

import pytest

from lakehouse.planning import available
from lakehouse.query import query
from sandboxes.problems import gates as gating
from sandboxes.problems.gates import Gates

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "own_problem"


def test_linting_says_what_is_wrong_and_how_to_mend_it(lakeloop, tmp_path):
    assert lakeloop("problems", "lint", str(EXAMPLE)).status == 0
    folder = Path(shutil.copytree(EXAMPLE, tmp_path / "own"))
    (folder / "statement.md").write_text("")
    ended = lakeloop("problems", "lint", str(folder))
    assert ended.status == 1
    assert "own/statement.md: it is empty say what goes wrong, as a user would report it" in ended.said
    ended = lakeloop("problems", "lint", str(tmp_path), "--json")
    assert ended.status == 1
    assert [(one["folder"], one["file"]) for one in json.loads(ended.out)] == [("own", "statement.md")]
    ended = lakeloop("problems", "lint", str(tmp_path / "nowhere"))
    assert ended.status == 1 and "no problem folder" in ended.said


@pytest.mark.bubblewrap
def test_a_folder_of_ones_own_is_imported_once(lakeloop):
    assert lakeloop("problems", "lint", str(EXAMPLE), "--run", "--backend", "bubblewrap").status == 0
    arguments = ("problems", "import", "folder", str(EXAMPLE), "--name", "ours", "--backend", "bubblewrap", "--json")
    report = json.loads(lakeloop(*arguments).out)
    assert (report["taken"], report["new"], report["refused"]) == (["swe/ours/slugs-limit"], 1, [])
    assert json.loads(lakeloop(*arguments).out)["new"] == 0
    (row,) = json.loads(lakeloop("query", "select kind, licence, oracle_passed from problems", "--json").out)
    assert row == {"kind": "swe", "licence": "Apache-2.0", "oracle_passed": True}


@pytest.mark.bubblewrap
def test_rows_that_cannot_be_taken_are_reported_and_end_with_1(lakeloop, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"instance_id": "a__b-1", "stars": 3}\nnot JSON\n')
    given = ("problems", "import", "swebench", str(rows), "--name", "theirs", "--backend", "bubblewrap")
    ended = lakeloop(*given)
    assert ended.status == 2 and "--licence" in ended.said
    ended = lakeloop(*given, "--licence", "MIT")
    assert ended.status == 1 and "--repos names a folder with local clones" in ended.said
    ended = lakeloop(*given, "--licence", "MIT", "--repos", str(tmp_path))
    assert ended.status == 1
    assert "columns that swebench does not have, kept with each problem: stars" in ended.said
    assert "1 a__b-1: refused: no swebench row: repo: field required" in ended.said
    assert "2 : refused: not JSON" in ended.said and "0 taken, 2 refused" in ended.said
    ended = lakeloop(*given, "--licence", "MIT", "--repos", str(tmp_path), "--skip-bad", "--json")
    assert ended.status == 0
    report = json.loads(ended.out)
    assert [one["line"] for one in report["refused"]] == [1, 2] and report["unknown_columns"] == {"stars": 1}


ROWS = [{"question": f"How many are {n} and one?", "answer": f"<<{n}+1={n + 1}>>\n#### {n + 1}"} for n in range(4)]


@pytest.fixture
def gated(monkeypatch, tmp_path):
    """Imports four rows; no box runs. The prompts of those that went through the gates, which say what the test wants."""
    seen = []
    said = {"oracle": lambda problem: True}
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS))

    async def played(kind, problem, box):
        seen.append(problem.prompt)
        return Gates(oracle_passed=said["oracle"](problem), null_failed=True)

    monkeypatch.setattr(gating, "gates", played)
    monkeypatch.setattr("sandboxes.backends.prepare", lambda name: None)
    given = ("problems", "import", "gsm8k", str(rows), "--name", "mine", "--licence", "MIT")
    return given, seen, said


def marks():
    """How many problems the lake has by what the gates said."""
    found = query("select oracle_passed, null_failed, ungated, count(*) as n from problems group by all").rows()
    return {(oracle, null) if not ungated else "not gated": n for oracle, null, ungated, n in found}


def test_every_imported_problem_goes_through_the_gates_unless_a_sample_is_asked_for(lakeloop, gated):
    given, seen, said = gated
    said["oracle"] = lambda problem: "2" not in problem.prompt
    ended = lakeloop(*given)
    assert ended.status == 0 and "3 of 4 pass both gates" in ended.out and "not gated" not in ended.out
    assert sorted(seen) == [row["question"] for row in ROWS]
    assert marks() == {(True, True): 3, (False, True): 1}
    assert available(None, "python", split="train") == 3
    (listed,) = json.loads(lakeloop("problems", "list", "--json").out)
    assert (listed["problems"], listed["gated"], listed["failed"], listed["not_gated"]) == (4, 3, 1, 0)


@pytest.mark.parametrize("sample", [0, 1, 3])
def test_what_is_not_in_the_sample_is_in_the_lake_as_not_gated_and_never_drawn(lakeloop, gated, sample):
    given, seen, said = gated
    ended = lakeloop(*given, "--sample", str(sample))
    assert ended.status == 0 and len(seen) == sample
    assert f"{4 - sample} of 4 are not gated: they are never drawn nor trained on" in ended.said
    assert marks() == {"not gated": 4 - sample} | ({(True, True): sample} if sample else {})
    assert available(None, "python", split="train") == sample
    (listed,) = json.loads(lakeloop("problems", "list", "--json").out)
    assert (listed["problems"], listed["gated"], listed["failed"], listed["not_gated"]) == (4, sample, 0, 4 - sample)
    said["oracle"] = lambda problem: "3" not in problem.prompt
    assert lakeloop(*given).status == 0  # the whole, later
    assert marks() == {(True, True): 3, (False, True): 1}
    said["oracle"] = lambda problem: True
    assert lakeloop(*given).status == 0
    assert available(None, "python", split="train") == 4


def test_what_was_gated_before_stays_so_when_a_sample_of_it_is_imported_again(lakeloop, gated):
    given, seen, _ = gated
    assert lakeloop(*given).status == 0
    ended = lakeloop(*given, "--sample", "1")
    assert len(seen) == 4 + 1
    assert "0 new problems or editions" in ended.out and "not gated" not in ended.said
    assert available(None, "python", split="train") == 4


def test_a_failure_in_the_sample_refuses_them_all(lakeloop, gated):
    given, _, said = gated
    said["oracle"] = lambda problem: False
    assert lakeloop(*given, "--sample", "2").status == 1
    assert json.loads(lakeloop("problems", "list", "--json").out) == []


def test_how_far_the_gates_are_is_shown_while_they_take_their_time(lakeloop, gated, monkeypatch):
    given, _, _ = gated
    monkeypatch.setattr("flows.cli.problems.PROGRESS_S", 0.0)
    assert "4 of 4 went through the gates" in lakeloop(*given).err
