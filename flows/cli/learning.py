"""`lakeloop diagnose`: whether a training run learns, and what keeps it from that."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

console = Console()

SHOWN = ("loss", "entropy", "kl_to_proximal", "clip_fraction", "effective_sample_size", "grad_norm", "staleness")


class NoRun(Exception):
    """There is no such training run."""


def add_to(app: typer.Typer) -> None:
    app.command(rich_help_panel="Loop")(diagnose)


def diagnose(
    run: Annotated[
        str,
        typer.Argument(help="A run's name under runs/, or its folder. Without one: the newest.", show_default=False),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Say why a training run does not learn: its first and last step, and each cause with its remedy.

    It reads the run's `metrics.jsonl`, so it also speaks of a run that goes on or that failed. Exit status 1 where something
    was found.
    """
    from tasks.training.diagnosis import diagnose as causes
    from tasks.training.diagnosis import history

    folder = _folder(run)
    entries = history(folder / "work" / "metrics.jsonl")
    found = causes(entries)
    if as_json:
        typer.echo(json.dumps({"run": folder.name, "diagnosis": [asdict(one) for one in found], "steps": len(entries)}))
    else:
        _show(folder, entries)
        for one in found:
            console.print(f"[red]{escape(one.name)}[/red]: {escape(one.cause)}. {escape(one.remedy)}", highlight=False)
        if not found:
            console.print("nothing was found that keeps it from learning")
    if found:
        raise typer.Exit(1)


def _folder(run: str) -> Path:
    from lakehouse.home import home

    runs = home().runs
    if not run:
        there = sorted(runs.glob(str(Path("*", "work", "metrics.jsonl"))), key=lambda file: file.stat().st_mtime)
        if not there:
            raise NoRun(f"no training run under {runs}: `lakeloop train` makes one")
        return there[-1].parents[1]
    for folder in (runs / run, Path(run)):
        if (folder / "work" / "metrics.jsonl").exists():
            return folder
    raise NoRun(f"no training run {run!r} under {runs}, or it has not begun its first step")


def _show(folder: Path, entries: list[dict[str, object]]) -> None:
    steps = [entry for entry in entries if "loss" in entry]
    if not steps:
        console.print(f"{folder.name}: no step so far")
        return
    table = Table("metric", "first step", f"step {steps[-1]['step']}", title=folder.name)
    for name in SHOWN:
        if name in steps[-1]:
            table.add_row(name, *(f"{entry[name]:.4g}" for entry in (steps[0], steps[-1])))
    console.print(table)
