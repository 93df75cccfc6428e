"""A real git repository: one commit with a bug, then one that mends it and adds a module and a test."""

import subprocess
from types import SimpleNamespace

import pytest

CORE = """def clamp(value, low, high):
    if value < low:
        return low
    return min(value, high)


def total(values):
    return sum(values) - 1 if values else 0
"""
MENDED = CORE.replace("sum(values) - 1 if values else 0", "sum(map(exact, values))").replace(
    "def clamp", "from pebble.exact import exact\n\n\ndef clamp", 1
)
EXACT = "def exact(value):\n    return value\n"
TESTS = """from pebble.core import clamp


def test_clamp():
    assert clamp(9, 0, 5) == 5
"""
MORE = """from pebble.core import clamp, total


def test_clamp():
    assert clamp(9, 0, 5) == 5


class TestTotal:
    def test_some(self):
        assert total([1, 2, 3]) == 6

    def test_none(self):
        assert total([]) == 0
"""
FAILS = "tests/test_core.py::TestTotal::test_some"
PASSES = ("tests/test_core.py::TestTotal::test_none", "tests/test_core.py::test_clamp")


def git(folder, *arguments):
    identity = ("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def write(folder, files):
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """`repos` with the clone of rocks/pebble; its two commits and the diffs between them."""
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path / "home"))
    folder = tmp_path / "repos" / "rocks__pebble"
    write(
        folder,
        {
            "pebble/__init__.py": "",
            "pebble/core.py": CORE,
            "tests/test_core.py": TESTS,
            "setup.py": "raise SystemExit\n",
        },
    )
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    base = git(folder, "rev-parse", "HEAD").strip()
    write(folder, {"pebble/core.py": MENDED, "pebble/exact.py": EXACT, "tests/test_core.py": MORE})
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "second")
    fixed = git(folder, "rev-parse", "HEAD").strip()
    return SimpleNamespace(
        repos=folder.parent,
        folder=folder,
        base=base,
        fixed=fixed,
        patch=git(folder, "diff", base, fixed, "--", "pebble"),
        test_patch=git(folder, "diff", base, fixed, "--", "tests"),
        bug=git(folder, "diff", fixed, base, "--", "pebble/core.py"),
        tests=MORE,
        fails=FAILS,
        passes=list(PASSES),
    )
