"""Problems of others and of one's own, from the command line."""

import json
import shutil
from pathlib import Path

import pytest

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
