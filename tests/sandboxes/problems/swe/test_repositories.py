import pytest

from lakehouse.home import home
from sandboxes.problems.base import EnvironmentFailure
from sandboxes.problems.swe import repositories, sources, spec
from sandboxes.problems.swe.repositories import Layout, keep, read

TREE = {"stone/core.py": b"x = 1\n", "tests/test_core.py": b""}
LAYOUT = Layout(name="rocks__stone", licence="MIT", split="train", sources=("*.py",), tests=("tests/*.py",))


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))


def test_what_is_kept_can_be_read_and_keeping_it_again_gives_the_same_version():
    version, digest = keep(LAYOUT, "abc", TREE)
    assert keep(LAYOUT, "abc", dict(reversed(TREE.items()))) == (version, digest)
    package, tree = read("rocks__stone", version)
    assert tree == TREE
    assert package.sha256 == {version: digest} and package.is_source("stone/core.py")
    assert sources.pristine("rocks__stone", version) == TREE


def test_another_tree_or_layout_is_another_version():
    version, _ = keep(LAYOUT, "abc", TREE)
    assert keep(LAYOUT, "abc", TREE | {"stone/core.py": b"x = 2\n"})[0] != version
    assert keep(LAYOUT.model_copy(update={"sources": ("stone/*",)}), "abc", TREE)[0] != version


def test_a_file_that_was_changed_is_refused():
    version, _ = keep(LAYOUT, "abc", TREE)
    path = home().root / "repositories" / "rocks__stone" / f"{version}.tar.gz"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(EnvironmentFailure, match="damaged"):
        read("rocks__stone", version)


@pytest.mark.parametrize("name, version", [("../etc", "1"), ("a", "../../b"), ("", "1"), (".ssh", "1")])
def test_names_that_lead_elsewhere_are_refused(name, version):
    with pytest.raises(EnvironmentFailure, match="is no name of a repository"):
        read(name, version)


def test_the_first_validation_of_a_version_holds():
    first = ["tests/test_core.py::test_a", "tests/test_core.py::test_b"]
    assert spec.learn("rocks__stone", "1", {"tests/test_core.py": first}, 0.5) == 0.5
    assert spec.learn("rocks__stone", "1", {"tests/test_core.py": first[:1]}, 0.9) == 0.5
    assert repositories.validated("rocks__stone", "1").tests == {"tests/test_core.py": ["test_a", "test_b"]}
    assert spec.nodes("rocks__stone", "1") == {"tests/test_core.py": first}


def test_a_tree_that_no_box_can_hold_is_refused(monkeypatch):
    monkeypatch.setattr(repositories, "LARGEST_TREE", 1 << 20)
    with pytest.raises(ValueError, match="larger than 1 MiB"):
        keep(LAYOUT, "abc", {"big": bytes(2 << 20)})
