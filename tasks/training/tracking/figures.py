"""What a run looked like, as pictures: reward, KL, ratio, log-prob agreement. Drawn once, at the end, on the first rank."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tasks.training.step import histograms

Entry = Mapping[str, Any]


def draw(entries: Sequence[Entry], folder: Path) -> Iterator[Path]:
    """Writes a PNG for each picture that the entries of metrics.jsonl have something for."""
    steps = [entry for entry in entries if "loss" in entry]
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in _PICTURES.items():
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        if picture(axes, entries if name == "agreement" else steps):
            axes.grid(alpha=0.3)
            figure.savefig(folder / f"{name}.png", dpi=100)
            yield folder / f"{name}.png"


def _curves(axes: Axes, steps: Sequence[Entry], names: Mapping[str, str]) -> bool:
    """One line per metric that is there, by step."""
    drawn = False
    for name, label in names.items():
        points = [(entry["step"], entry[name]) for entry in steps if name in entry]
        if points:
            axes.plot(*zip(*points, strict=True), label=label, marker="." if len(points) < 50 else "")
            drawn = True
    axes.set(xlabel="step")
    if drawn:
        axes.legend()
    return drawn


def _loss(axes: Axes, steps: Sequence[Entry]) -> bool:
    axes.set(title="Loss and entropy, per trained token")
    return _curves(axes, steps, {"loss": "loss", "entropy": "entropy, nats"})


def _reward(axes: Axes, steps: Sequence[Entry]) -> bool:
    axes.set(title="Mean reward of the rows of each step")
    names = sorted({name for entry in steps for name in entry if name.startswith("reward/")})
    return _curves(axes, steps, {name: name.removeprefix("reward/") for name in names})


def _kl(axes: Axes, steps: Sequence[Entry]) -> bool:
    axes.set(title="KL, nats per token (k3)")
    return _curves(axes, steps, {"kl_to_proximal": "to the proximal policy", "kl_to_reference": "to the reference"})


def _ratio(axes: Axes, steps: Sequence[Entry]) -> bool:
    """Share of tokens by log(policy / sampler), first and last step."""
    name = f"{histograms.PREFIX}log_ratio"
    held = [entry for entry in steps if name in entry]
    edges = histograms.EDGES["log_ratio"]
    labels = [f"< {edges[0]:g}", *(f"{low:g}" for low in edges)]
    for entry in dict.fromkeys((0, len(held) - 1)) if held else ():
        counts = held[entry][name]
        axes.step(
            range(len(counts)),
            [n / max(1, sum(counts)) for n in counts],
            where="mid",
            label=f"step {held[entry]['step']}",
        )
    axes.set(title="log(policy / sampler) of the trained tokens", ylabel="share of tokens", xlabel="bins, from")
    axes.set_xticks(range(len(labels)), labels, rotation=60, fontsize=7)
    if held:
        axes.legend()
    return bool(held)


def _agreement(axes: Axes, entries: Sequence[Entry]) -> bool:
    """|trainer - engine| by place in the row."""
    prefix = "agreement/position/"
    first = next((entry for entry in entries if "agreement/mean" in entry), {})
    places = {name.removeprefix(prefix): value for name, value in first.items() if name.startswith(prefix)}
    axes.bar(list(places), list(places.values()))
    axes.set(title="|trainer - engine|, mean by position", ylabel="nats", xlabel="token of the row")
    return bool(places)


_PICTURES: Mapping[str, Callable[[Axes, Sequence[Entry]], bool]] = {
    "loss": _loss,
    "reward": _reward,
    "kl": _kl,
    "ratio": _ratio,
    "agreement": _agreement,
}
