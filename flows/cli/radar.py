"""`lakeloop radar`: what the reward-hack detectors saw."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

console = Console()


def radar(
    by_version: Annotated[
        bool, typer.Option("--by-version", help="The rate per model version, kind and purpose.")
    ] = False,
    detectors: Annotated[bool, typer.Option("--detectors", help="What each detector sees.")] = False,
    run: Annotated[str | None, typer.Option(help="Only episodes of this run.")] = None,
    severe: Annotated[bool, typer.Option("--severe", help="Only what no honest work gives (weight 1).")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Rows shown.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts, one array of objects.")] = False,
) -> None:
    """Reward hacks: episodes in which a detector saw something, the heaviest first.

    Detectors are SQL over actions and evidence (docs/radar.md). A version whose evaluation episodes show severe ones beyond
    a limit is not promoted. `lakeloop episodes show ID` is one of them in full.
    """
    from dataclasses import asdict

    from lakehouse.query import query
    from lakehouse.radar import detectors as known
    from lakehouse.radar import hits

    if detectors:
        rows = [asdict(one) for one in known()]
    elif by_version:
        rows = query("from radar_by_version").to_dicts()
    else:
        rows = [hit.model_dump() for hit in hits(None, run_id=run, severe=severe, limit=limit)]
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False))
    elif not rows:
        console.print("The radar saw nothing." if not by_version else "No version has acted yet.")
    else:
        console.print(_table(rows))


def _table(rows: list[dict[str, object]]) -> Table:
    shown = Table(*rows[0])
    for row in rows:
        shown.add_row(*(escape(_cell(value)) for value in row.values()))
    return shown


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)
