"""The builder's flow and command on the real stack. What a build does in boxes: tests/sandboxes/problems/swe/test_build.py."""

import json

import pytest

from sandboxes.problems.swe import shipped

pytestmark = [pytest.mark.stack, pytest.mark.engine]

NOTHING = ("--singles", "0", "--combined", "0", "--no-versions")


def test_a_build_begins_with_the_shipped_problems_and_reports(command, tmp_path):
    running = command("problems", "build", "swe", "--package", "parse", *NOTHING, "--out", str(tmp_path), "--json")
    out, err = running.communicate(timeout=400)
    assert running.returncode == 0, err
    built = json.loads(out)
    assert built["report"]["tried"] == 0 and built["folder"] == str(tmp_path)
    assert shipped.read(tmp_path) == shipped.load()
    assert "building parse" in err


def test_a_package_that_is_not_known_is_an_error_that_names_those_that_are(command, tmp_path):
    running = command("problems", "build", "swe", "--package", "nowhere", *NOTHING, "--out", str(tmp_path))
    out, err = running.communicate(timeout=400)
    assert running.returncode == 1
    said = " ".join(err.split())
    assert "no package here is called nowhere; there are boltons, cachetools" in said
    assert out == ""
