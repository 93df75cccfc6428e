"""`lakeloop images`."""

import json

import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from sandboxes import backends
from sandboxes.backends import images
from sandboxes.backends.base import BackendUnavailable
from sandboxes.backends.images import ImageMissing
from sandboxes.backends.rootfs import RecipeError


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A machine on which no image was made and no Docker engine answers."""
    monkeypatch.setattr(images, "FOLDER", tmp_path)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")


def said(*arguments):
    ended = CliRunner().invoke(app, ["images", *arguments], catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def test_scripts_read_what_is_there_and_what_was_removed(empty, tmp_path):
    assert json.loads(said("list", "--json")) == []
    old = tmp_path / "root-0123456789abcdef"
    old.mkdir()
    old.with_suffix(".json").write_text('{"debian": ["git"], "python": [], "installed": {}}')
    (listed,) = json.loads(said("list", "--json"))
    assert (listed["name"], listed["debian"], listed["in_docker"]) == ("lakeloop-root:0123456789abcdef", ["git"], None)
    assert "git" in said("list")
    assert json.loads(said("prune", "--json"))["images"] == []
    assert old.exists()


def test_a_package_without_its_version_is_refused_with_the_way_to_write_it(empty):
    with pytest.raises(RecipeError, match="write NAME==VERSION"):
        said("build", "--python", "six")


@pytest.mark.bubblewrap
def test_a_folder_that_is_not_there_is_said_to_be_missing(empty):
    try:
        backends.choose("bubblewrap")
    except BackendUnavailable as reason:
        pytest.skip(str(reason))
    with pytest.raises(ImageMissing, match="/no/such"):
        said("check", "/no/such")
