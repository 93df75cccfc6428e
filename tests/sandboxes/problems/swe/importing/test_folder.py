"""Problem folders of one's own. The example in the documentation is graded in real boxes."""

import shutil
from pathlib import Path

import pytest

from lakehouse.records import Problem
from sandboxes.backends.scripted import ScriptedBackend
from sandboxes.problems.foreign import BadRow, Terms
from sandboxes.problems.swe.importing.folder import folders, lint, ran
from sandboxes.problems.swe.importing.imported import Order, imported
from sandboxes.problems.swe.spec import read_spec

EXAMPLE = Path(__file__).parents[5] / "docs" / "examples" / "own_problem"
TERMS = Terms(name="ours", split="eval", licence="as the folder says", allowed_uses=("training",))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A copy of the example, to be spoilt."""
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path / "home"))
    return Path(shutil.copytree(EXAMPLE, tmp_path / "set" / "own"))


@pytest.mark.bubblewrap
async def test_the_example_becomes_a_problem_with_what_it_says_of_itself(folder, boxes):
    (problem,) = [one async for one in imported(Order(form="folder", path=folder, terms=TERMS), boxes)]
    assert isinstance(problem, Problem), problem
    assert problem.problem_id == "swe/ours/slugs-limit"
    assert (problem.licence, problem.split, problem.difficulty) == ("Apache-2.0", "train", 0.4)
    assert problem.oracle_passed and problem.null_failed
    spec = read_spec(problem)
    assert spec.fail_to_pass == ("tests/test_core.py::test_a_slug_may_be_as_long_as_the_limit[7-one-two]",)
    assert len(spec.pass_to_pass) == 5


@pytest.mark.bubblewrap
async def test_running_shows_what_looking_does_not(folder, boxes):
    core = folder / "repository" / "slugs" / "core.py"
    (folder / "tests" / "test_core.py").write_text((folder / "repository" / "tests" / "test_core.py").read_text())
    assert lint(folder) == []
    assert "def slugify" in core.read_text()
    (finding,) = await ran(folder, boxes)
    assert finding.wrong == "no test notices" and finding.remedy


def test_the_example_is_clean_and_is_found_in_a_folder_of_such(folder):
    assert folders(folder.parent) == folders(folder) == [folder]
    assert lint(folder) == []


def spoil(name, change):
    return pytest.param(name, change, id=name)


@pytest.mark.parametrize(
    "said, change",
    [
        spoil("solution.patch: it is not there", lambda f: (f / "solution.patch").unlink()),
        spoil("tests: it is not there", lambda f: shutil.rmtree(f / "tests")),
        spoil("problem.toml is not TOML", lambda f: (f / "problem.toml").write_text("name = ")),
        spoil("licence: field required", lambda f: (f / "problem.toml").write_text('name = "x"\n')),
        spoil(
            "colour: extra inputs",
            lambda f: (f / "problem.toml").write_text('name = "x"\nlicence = "MIT"\ncolour = 1\n'),
        ),
        spoil(
            "is a package of the shipped",
            lambda f: (f / "problem.toml").write_text('name = "parse"\nlicence = "MIT"\n'),
        ),
        spoil("leads out", lambda f: (f / "problem.toml").write_text('name="x"\nlicence="MIT"\ntests_into="../x"\n')),
        spoil("statement.md: it is empty", lambda f: (f / "statement.md").write_text("\n")),
        spoil(
            "gives a line of the solution away", lambda f: (f / "statement.md").write_text("if len(longer) > limit:")
        ),
        spoil("repository/.git: history", lambda f: (f / "repository" / ".git").mkdir()),
        spoil("repository/x: it is a link", lambda f: (f / "repository" / "x").symlink_to("/etc/passwd")),
        spoil("no file in it is a test", lambda f: (f / "tests" / "test_core.py").rename(f / "tests" / "core.py")),
        spoil("it is not Python", lambda f: (f / "tests" / "test_core.py").write_text("def f(:")),
        spoil("does not apply", lambda f: (f / "repository" / "slugs" / "core.py").write_text("x = 1\n")),
        spoil("solution.patch: it is empty", lambda f: (f / "solution.patch").write_text("")),
        spoil(
            "not among the sources",
            lambda f: (f / "problem.toml").write_text('name = "x"\nlicence = "MIT"\nsources = ["other/*.py"]\n'),
        ),
    ],
)
async def test_what_is_wrong_is_said_with_its_remedy_and_is_not_taken(folder, said, change):
    change(folder)
    found = lint(folder)
    assert any(said in f"{one.file}: {one.wrong}" for one in found), found
    assert all(one.remedy and one.folder == "own" for one in found)
    (refused,) = [one async for one in imported(Order(form="folder", path=folder, terms=TERMS), ScriptedBackend())]
    assert found[0].wrong in refused.reason


def test_a_folder_without_problems_says_what_one_has(tmp_path):
    with pytest.raises(BadRow, match=r"has a problem\.toml"):
        folders(tmp_path)
