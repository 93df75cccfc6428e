"""Figure of `lakeloop bench async --json`: `python -m benchmarks.async_plot RESULT.json FIGURE.png`."""

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure


def draw(found: dict[str, Any], file: Path) -> None:
    """Speedup by staleness on the left, the share of device time that full batches would not need on the right."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    _lines(left, {name: {"0": 1.0, **held} for name, held in found["speedup"].items()})
    for policy, ratio in found["published"].items():
        left.axhline(ratio, color="grey", linestyle=":", linewidth=1)
        left.annotate(f"AReaL, {policy}", (0, ratio), fontsize=7, va="bottom")
    left.set(title="Times as fast as taking turns", ylabel="speedup")
    bubbles = {
        name: {bound.replace("sync", "0"): share for bound, share in held.items()}
        for name, held in found["bubble_fraction"].items()
    }
    _lines(right, bubbles)
    right.set(title="Device time that full batches would not take", ylim=(0, 1))
    right.legend(fontsize=8)
    figure.savefig(file, dpi=100)


def _lines(axes: Axes, by_shape: dict[str, dict[str, float]]) -> None:
    for name, held in by_shape.items():
        axes.plot(list(held), list(held.values()), marker="o", label=name)
    axes.set(xlabel="staleness, in versions (0: taking turns)")
    axes.grid(alpha=0.3)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
