"""The charts of the trajectories notebook."""

from collections.abc import Mapping

import matplotlib as mpl
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = ("#3b6fd4", "#e08a1e", "#2a9d78", "#a855a8")  # one per problem kind, in the order of their names
QUIET = "#7a7f94"
LOOK = {
    "figure.dpi": 160,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": QUIET,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "grid.color": "#e8e8ee",
    "legend.frameon": False,
}


def progress_chart(by_version: pl.DataFrame, stages: Mapping[int, str]) -> Figure:
    """Success and reward against the model version: a line per kind, solid on held-out problems, dashed in training.

    `by_version` has kind, split, version, episodes, success, reward and reward_error; `stages` names versions.
    """
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(10, 3.4), layout="constrained")
        success, reward = figure.subplots(1, 2)
        kinds = by_version["kind"].unique().sort().to_list()
        for (kind, split), points in by_version.group_by("kind", "split", maintain_order=True):
            held_out = split == "eval"
            look = {
                "fmt": "o-" if held_out else "o--",
                "color": COLOURS[kinds.index(kind) % len(COLOURS)],
                "mfc": None if held_out else "white",
                "alpha": 1 if held_out else 0.7,
                "label": f"{kind}, {'held out' if held_out else 'training'}",
                "markersize": 4.5,
                "elinewidth": 0.8,
                "capsize": 2,
            }
            at = points["version"] + 0.06 * (kinds.index(kind) - (len(kinds) - 1) / 2)  # equal points stay visible
            reach = interval(points["success"], points["episodes"])
            success.errorbar(at, points["success"], yerr=reach, **look)
            reward.errorbar(at, points["reward"], yerr=points["reward_error"].fill_null(0), **look)
        success.set(title="success", ylim=(0, 1.03))
        success.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
        reward.set(
            title="mean reward", ylim=(min(0, by_version["reward"].min()), max(1, by_version["reward"].max()) * 1.03)
        )
        for axis in (success, reward):
            _name_versions(axis, by_version["version"].unique().sort().to_list(), stages)
        figure.legend(*success.get_legend_handles_labels(), loc="outside right center")
    return figure


def shape_chart(acted: pl.DataFrame, staleness: pl.DataFrame) -> Figure:
    """Side by side: sampled tokens and turns of an episode by kind, and the staleness of trained tokens."""
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(10, 2.8), layout="constrained")
        tokens, turns, stale = figure.subplots(1, 3)
        groups = {kind: group for (kind,), group in acted.sort("kind").group_by("kind", maintain_order=True)}
        look = {
            "label": list(groups),
            "color": [COLOURS[i % len(COLOURS)] for i in range(len(groups))],
            "stacked": True,
        }
        if groups:
            tokens.hist([group["tokens"] for group in groups.values()], bins=24, **look)
            edges = [n - 0.5 for n in range(acted["turns"].min(), acted["turns"].max() + 2)]
            turns.hist([group["turns"] for group in groups.values()], bins=edges, rwidth=0.85, **look)
            tokens.legend()
        if staleness.is_empty():
            stale.text(
                0.5, 0.5, "nothing trained yet\non policy samples", transform=stale.transAxes, ha="center", color=QUIET
            )
        else:
            stale.bar(staleness["staleness"], staleness["tokens"], width=0.6, color=QUIET)
        furthest = max([2, *staleness["staleness"]])
        stale.set(xlim=(-0.6, furthest + 0.6), xticks=range(furthest + 1))
        tokens.set(title="sampled tokens", xlabel="per episode", ylabel="episodes")
        turns.set(title="turns", xlabel="per episode", ylabel="episodes")
        stale.set(title="staleness", xlabel="versions", ylabel="trained tokens")
        for axis in (tokens, turns, stale):
            axis.yaxis.set_major_formatter("{x:,.0f}")
    return figure


def fate_chart(fates: pl.DataFrame, hacks: pl.DataFrame) -> Figure:
    """Side by side: what became of every sampled token by training set, and the share of episodes with a severe hack.

    `fates` has training_set, fate and tokens, sets in order of age; `hacks` has kind, version, episodes and rate.
    """
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(10, 3.2), layout="constrained")
        tokens, rate = figure.subplots(1, 2)
        sets = fates["training_set"].unique(maintain_order=True).to_list()
        left = dict.fromkeys(sets, 0)
        for at, (fate,) in enumerate(fates.select("fate").unique(maintain_order=True).rows()):
            held = dict(fates.filter(fate=fate).select("training_set", "tokens").rows())
            widths = [held.get(name, 0) for name in sets]
            colour = COLOURS[0] if fate == "trained" else mpl.colormaps["Greys"](0.25 + 0.12 * (at % 6))
            tokens.barh(sets, widths, left=list(left.values()), color=colour, label=fate, height=0.6)
            left = {name: left[name] + width for name, width in zip(sets, widths, strict=True)}
        if sets:
            tokens.legend(fontsize=7, loc="upper left", bbox_to_anchor=(0, -0.2), ncols=2)
        kinds = hacks["kind"].unique().sort().to_list()
        for (kind,), points in hacks.group_by("kind", maintain_order=True):
            colour = COLOURS[kinds.index(kind) % len(COLOURS)]
            reach = interval(points["rate"], points["episodes"])
            rate.errorbar(
                points["version"], points["rate"], yerr=reach, fmt="o-", color=colour, label=kind, markersize=4.5
            )
        if kinds:
            rate.legend()
            rate.set_xticks(hacks["version"].unique().sort().to_list())
        highest = hacks["rate"] + interval(hacks["rate"], hacks["episodes"])[1]
        rate.set(title="episodes with a severe hack", xlabel="version", ylim=(0, max([0.1, *highest]) * 1.05))
        rate.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
        tokens.set(title="where tokens went", xlabel="sampled tokens")
        tokens.xaxis.set_major_formatter("{x:,.0f}")
    return figure


def interval(share: pl.Series, n: pl.Series, z: float = 1.96) -> tuple[pl.Series, pl.Series]:
    """How far Wilson's interval of a share of `n` reaches below and above the share; 95 % by default."""
    n = n.cast(pl.Float64)  # a count's square may not fit its own type
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * (share * (1 - share) / n + z * z / (4 * n * n)).sqrt()
    return (share - centre + reach).clip(0), (centre + reach - share).clip(0)  # rounding may leave -1e-17


def _name_versions(axis: Axes, versions: list[int], stages: Mapping[int, str]) -> None:
    shown = versions[:: max(1, len(versions) // 8)]
    axis.set_xticks(shown, [f"v{version}\n{stages.get(version, '')}" for version in shown])
    axis.margins(x=0.08)
