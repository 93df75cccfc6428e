import pytest

from lakehouse.home import home
from sandboxes.problems.base import EnvironmentFailure
from sandboxes.problems.swe import sources


def test_a_tree_holds_code_and_tests_but_no_metadata_changelog_or_configuration(pebble):
    assert list(sources.pristine("pebble", "1.0")) == ["pebble/__init__.py", "pebble/core.py", "tests/test_core.py"]


def test_a_file_with_another_digest_is_not_used(pebble, monkeypatch):
    path = home().cache / "sdists" / "pebble-1.0.tar.gz"
    path.write_bytes(b"something else")
    monkeypatch.setattr(sources, "_pip", lambda: ["false"])
    with pytest.raises(EnvironmentFailure, match=r"put the file at .*pebble-1\.0\.tar\.gz"):
        sources.pristine("pebble", "1.0")


def test_an_unknown_release_says_so():
    with pytest.raises(EnvironmentFailure, match="no known package and no repository"):
        sources.pristine("nowhere", "1.0")
