"""A small package of our own, as a source distribution in the cache: no index is asked."""

import io
import tarfile
from hashlib import sha256

import pytest

from lakehouse.records import Problem, now
from sandboxes.backends import prepare
from sandboxes.backends.base import BackendUnavailable
from sandboxes.problems.swe import packages, sources, spec
from sandboxes.problems.swe.mutate import mutations
from sandboxes.problems.swe.packages import Package

CORE = b"""def clamp(value, low, high):
    if value < low:
        return low
    return min(value, high)


def total(values):
    result = 0
    for value in values:
        result = result + value
    return result
"""
TESTS = b"""import pytest
from pebble.core import clamp, total


@pytest.mark.parametrize("value, expected", [(-1, 0), (3, 3), (9, 5)])
def test_clamp(value, expected):
    assert clamp(value, 0, 5) == expected


def test_total():
    assert total([1, 2, 3]) == 6


def test_total_of_nothing():
    assert total([]) == 0
"""
FILES = {
    "PKG-INFO": b"Name: pebble\n",
    "CHANGES.md": b"total adds\n",
    "conftest.py": b"",
    "pebble/__init__.py": b"",
    "pebble/core.py": CORE,
    "tests/test_core.py": TESTS,
}
NODES = [
    *(f"tests/test_core.py::test_clamp[{case}]" for case in ("-1-0", "3-3", "9-5")),
    "tests/test_core.py::test_total",
    "tests/test_core.py::test_total_of_nothing",
]


def sdist(files):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for path, content in files.items():
            member = tarfile.TarInfo(f"pebble-1.0/{path}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


@pytest.fixture(autouse=True)
def once(monkeypatch):
    """No grading is run a second time by chance."""
    monkeypatch.setenv("LAKELOOP_GRADE_AGAIN", "0")


@pytest.fixture
def pebble(tmp_path, monkeypatch):
    """The package's layout; its source lies in the cache of a home of its own."""
    raw = sdist(FILES)
    package = Package(
        name="pebble",
        licence="MIT",
        split="train",
        version="1.0",
        sha256={"1.0": sha256(raw).hexdigest()},
        sources=("pebble/*.py",),
        tests=("tests/test_*.py",),
    )
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    monkeypatch.setitem(packages.PACKAGES, "pebble", package)
    cache = tmp_path / "cache" / "sdists"
    cache.mkdir(parents=True)
    (cache / "pebble-1.0.tar.gz").write_bytes(raw)
    sources.pristine.cache_clear()
    spec.learn("pebble", "1.0", {"tests/test_core.py": NODES})
    yield package
    sources.pristine.cache_clear()


@pytest.fixture
def bug():
    """`result + value` became `result - value`."""
    found = next(m for m in mutations(CORE.decode()) if m.kind == "arithmetic")
    return spec.Bug(path="pebble/core.py", **vars(found))


@pytest.fixture
def problem(pebble, bug):
    value = spec.Spec(
        package="pebble",
        version="1.0",
        sha256=pebble.sha256["1.0"],
        tests_version="1.0",
        hint=3,
        bug=bug,
        repair=(spec.Edit(path=bug.path, line=bug.line, old=bug.new, new=bug.old),),
        test_files=("tests/test_core.py",),
        fail_to_pass=("tests/test_core.py::test_total",),
        duration_s=0.1,
    )
    return Problem(
        problem_id="swe/pebble/total",
        kind="swe",
        source="pebble==1.0",
        split="train",
        title="pebble",
        prompt="pebble\nFails: total([1, 2, 3]) == 6 -> -6",
        spec=value.model_dump_json(),
        licence="MIT",
        allowed_uses=["training"],
        difficulty=0.2,
        oracle_passed=True,
        null_failed=True,
        created_at=now(),
    )


@pytest.fixture(scope="session")
def boxes():
    """A backend with real boxes."""
    try:
        return prepare("bubblewrap")
    except BackendUnavailable as reason:
        pytest.skip(str(reason))
