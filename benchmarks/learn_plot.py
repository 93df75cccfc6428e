"""Figure of `lakeloop bench learn --json`: `python -m benchmarks.learn_plot RESULT.json FIGURE.png`."""

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure


def draw(found: dict[str, Any], file: Path) -> None:
    """Held-out success by objective on the left, where it was measured; the price of staleness on the right."""
    wide = "success" in found
    figure = Figure(figsize=(11 if wide else 7, 4), layout="constrained")
    axes = figure.subplots(1, 2 if wide else 1, squeeze=False)[0]
    if wide:
        _success(axes[0], found)
    _asynchrony(axes[-1], found["asynchrony"])
    figure.savefig(file, dpi=100)


def _success(axes: Axes, found: dict[str, Any]) -> None:
    names = list(found["success"])
    means = [found["success"][name]["mean"] for name in names]
    below = [mean - found["success"][name]["low"] for mean, name in zip(means, names, strict=True)]
    above = [found["success"][name]["high"] - mean for mean, name in zip(means, names, strict=True)]
    axes.errorbar(names, means, yerr=[below, above], fmt="o", capsize=4)
    axes.set(title=f"Held-out success, {found['seeds']} seeds (bars: 95 %)", ylim=(0, 1))
    axes.grid(alpha=0.3)


def _asynchrony(axes: Axes, found: dict[str, Any]) -> None:
    for name, style in (("naive", "--"), ("decoupled", "-")):
        for number, (staleness, told) in enumerate(found[name].items()):
            steps = [told["every"] * i for i in range(len(told["curve"]))]
            axes.plot(steps, told["curve"], style, color=f"C{number}", label=f"{name}, {staleness} old")
    axes.set(title="Reward on old rollouts", xlabel="step", ylim=(0, 1))
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
