"""The parts of `lakeloop bench learn` that need no stack: the price of asynchrony, and its picture."""

from pathlib import Path

import pytest

from benchmarks import learn_async, learn_plot


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, dict[str, object]]]:
    """Of two steps in place of some hundred."""
    learn = learn_async.learn
    monkeypatch.setattr(learn_async, "learn", lambda arm, *, seed, steps: learn(arm, seed=seed, steps=2) * (steps // 2))
    return learn_async.measure(quick=True)


def test_every_objective_is_measured_at_every_staleness(found, tmp_path: Path) -> None:
    assert found.keys() == {"naive", "decoupled"}
    for arms in found.values():
        assert list(arms) == [str(staleness) for staleness in learn_async.STALENESS]
        for told in arms.values():
            assert 0 < told["early"]["mean"] < 1 and 0 < told["late"]["mean"] < 1
            assert told["steps_to_90"]["mean"] == len(told["curve"]) * told["every"] == 60


def test_its_picture_has_a_curve_for_each(found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    plot = learn_plot.Axes.plot
    monkeypatch.setattr(learn_plot.Axes, "plot", lambda axes, *a, **k: drawn.append(k["label"]) or plot(axes, *a, **k))
    learn_plot.draw({"asynchrony": found}, tmp_path / "learn.png")
    assert (tmp_path / "learn.png").stat().st_size > 0
    assert len(drawn) == 2 * len(learn_async.STALENESS)
