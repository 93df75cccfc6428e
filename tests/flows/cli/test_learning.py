"""`lakeloop diagnose` over the metrics of runs in the home folder."""

import json
import os

import pytest


@pytest.fixture
def run(tmp_path):
    """Writes a run's metrics, a step per clip fraction."""

    def write(name, *clipped, age=0):
        file = tmp_path / "runs" / name / "work" / "metrics.jsonl"
        file.parent.mkdir(parents=True)
        entries = [{"step": 0, "rows": 4}]
        entries += [
            {"step": n, "loss": 0.5, "learning_rate": 1e-3, "clip_fraction": share}
            for n, share in enumerate(clipped, 1)
        ]
        file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        os.utime(file, (file.stat().st_mtime - age,) * 2)

    return write


def test_the_newest_run_is_diagnosed_in_words_and_the_exit_status_says_so(run, lakeloop):
    run("grpo-old", 0.0, 0.1, age=100)
    run("grpo-new", 0.95, 1.0)
    found = lakeloop("diagnose")
    assert found.status == 1
    said = found.said
    assert "grpo-new" in said and "everything clipped: 100.0% of the tokens with an advantage" in said
    assert "Lower the learning rate" in said


def test_a_run_by_name_that_learns_has_nothing_to_say(run, lakeloop):
    run("grpo-old", 0.0, 0.1, age=100)
    run("grpo-new", 0.95, 1.0)
    found = lakeloop("diagnose", "grpo-old")
    assert found.status == 0
    assert "nothing was found" in found.out
    told = lakeloop("diagnose", "grpo-new", "--json")
    (one,) = json.loads(told.out)["diagnosis"]
    assert one["name"] == "everything clipped" and one["remedy"]


def test_a_run_that_has_not_begun_and_one_that_is_not_there(run, lakeloop):
    run("grpo-new")
    assert "no step so far" in lakeloop("diagnose").out
    missing = lakeloop("diagnose", "other")
    assert missing.status == 1
    assert "no training run 'other'" in missing.said
