"""Learn trains on what waits, once, and lets the gate decide."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from flows import learn as flow


@pytest.fixture
def acts(monkeypatch, tmp_path):
    """What was trained and released; what waits is set by the test."""
    done, waits = [], {}

    async def train(**asked):
        done.append(asked)
        return SimpleNamespace(folder=Path("f"), parent=3, training_set_id="ts-1", mlflow_run_id="m")

    async def release(folder, **asked):
        done.append(asked)
        return 4

    monkeypatch.setenv("LAKELOOP_HOME", str(tmp_path))
    monkeypatch.setattr(flow, "waiting", lambda lake, name, max_staleness: dict(waits))
    monkeypatch.setattr(flow, "train", train)
    monkeypatch.setattr(flow, "release", release)
    return done, waits


async def test_enough_groups_are_trained_on_and_what_comes_of_it_goes_through_the_gate(acts):
    done, waits = acts
    waits |= {"r": 10, "s": 6}
    assert await flow.learn.fn(max_staleness=2) == 4
    assert done[0] == {"objective": "grpo", "run_ids": ["r", "s"], "max_staleness": 2}
    assert done[1]["policy"] == "default"
    assert (done[1]["stage"], done[1]["parent"], done[1]["training_set_id"]) == ("grpo", 3, "ts-1")


async def test_too_few_are_left_to_wait(acts, capsys):
    done, waits = acts
    waits |= {"r": 15}
    assert await flow.learn.fn() is None
    assert done == []
    assert "15 groups of 1 runs wait, and 16 are enough" in capsys.readouterr().out
