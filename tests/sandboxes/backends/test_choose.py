"""Which backend is chosen, and what is said where none can be had."""

import subprocess
import sys

import pytest

from sandboxes.backends import choose
from sandboxes.backends.base import BackendUnavailable


@pytest.fixture
def nothing_here(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.docker
def test_docker_comes_first_where_an_engine_answers(docker_engine):
    assert choose().name == "docker"


@pytest.mark.bubblewrap
def test_bubblewrap_is_chosen_where_no_engine_answers(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    try:
        assert choose().name == "bubblewrap"
    except BackendUnavailable as reason:
        pytest.skip(str(reason))


def test_where_neither_can_be_had_both_causes_are_named(nothing_here):
    with pytest.raises(BackendUnavailable, match=r"no Docker engine answers .*bubblewrap is not installed"):
        choose()


def test_an_unknown_name_is_an_error():
    with pytest.raises(ValueError, match="auto, docker, bubblewrap"):
        choose("podman")


def test_preparing_where_nothing_can_be_had_fails_in_one_line(nothing_here):
    done = subprocess.run([sys.executable, "-m", "sandboxes.backends"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("error: no isolation backend")
    assert len(done.stderr.splitlines()) == 1
