from sandboxes.problems.swe.packages import Package
from sandboxes.problems.swe.patch import between

LAYOUT = Package("p", "MIT", "train", "1", {}, sources=("src/p/*.py",), tests=("tests/test_*.py",))
TREE = {"src/p/a.py": b"x = 1\n", "tests/test_a.py": b"assert True\n", "conftest.py": b""}


def test_sources_and_new_modules_are_taken_and_everything_else_is_refused():
    after = TREE | {
        "src/p/a.py": b"x = 2\n",
        "src/p/new.py": b"y = 1\n",
        "tests/test_a.py": b"",
        "conftest.py": b"import os\n",
        "src/p.pth": b"import os\n",
        "sitecustomize.py": b"",
        "pytest.py": b"",
        "src/p/__pycache__/a.pyc": b"\0",
    }
    patch = between(TREE, after, LAYOUT)
    assert sorted(patch.files) == ["src/p/a.py", "src/p/new.py"]
    assert patch.refused == ("conftest.py", "pytest.py", "sitecustomize.py", "src/p.pth", "tests/test_a.py")
    assert "-x = 1\n+x = 2\n" in patch.diff


def test_applying_a_patch_to_where_it_began_gives_the_sources_where_it_ended():
    after = {"src/p/b.py": b"z = 1\n"} | {path: text for path, text in TREE.items() if path != "src/p/a.py"}
    patch = between(TREE, after, LAYOUT)
    assert patch.files == {"src/p/a.py": None, "src/p/b.py": b"z = 1\n"}
    assert patch.applied(TREE) == after


def test_equal_patches_have_equal_digests_and_a_deletion_is_no_empty_file():
    emptied = between(TREE, TREE | {"src/p/a.py": b""}, LAYOUT)
    deleted = between(TREE, {k: v for k, v in TREE.items() if k != "src/p/a.py"}, LAYOUT)
    again = between(TREE, TREE | {"src/p/a.py": b""}, LAYOUT)
    assert emptied.digest == again.digest != deleted.digest


def test_a_patch_that_is_not_python_is_recognised():
    assert "SyntaxError" in (between(TREE, TREE | {"src/p/a.py": b"def f(:\n"}, LAYOUT).syntax_error() or "")
    assert between(TREE, TREE | {"src/p/a.py": b"x = 3\n"}, LAYOUT).syntax_error() is None


def test_no_change_is_an_empty_patch():
    assert between(TREE, dict(TREE), LAYOUT).empty


def test_what_is_read_by_its_name_is_refused_even_inside_a_package():
    layout = Package("p", "MIT", "train", "1", {}, sources=("p/*.py",), tests=("p/tests/test_*.py",))
    before = {"p/a.py": b"", "p/tests/test_a.py": b""}
    names = ("p/conftest.py", "p/tests/conftest.py", "p/sitecustomize.py", "p/setup.py")
    patch = between(before, before | dict.fromkeys(names, b"x = 1\n"), layout)
    assert patch.empty and patch.refused == tuple(sorted(names))


def test_a_new_module_that_would_be_imported_under_a_name_of_its_own_is_refused():
    layout = Package("p", "MIT", "train", "1", {}, sources=("*.py",), tests=("tests/test_*.py",), paths=(".", "src"))
    before = {"src/p/a.py": b"", "one.py": b""}
    after = before | {"pytest.py": b"1", "src/json.py": b"1", "src/p/new.py": b"1", "one.py": b"1"}
    patch = between(before, after, layout)
    assert sorted(patch.files) == ["one.py", "src/p/new.py"]
    assert patch.refused == ("pytest.py", "src/json.py")
