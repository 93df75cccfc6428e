"""`export`: a copy of a selection for another trainer."""

import json
from pathlib import Path
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    app.command(rich_help_panel="Lake")(export)


def export(
    to: Annotated[Path, typer.Option(help="The file to write: .jsonl or .parquet.")],
    form: Annotated[str, typer.Option("--format", help="Whose trainer reads it: verl or trl.")],
    shape: Annotated[
        str | None,
        typer.Option(help="prompts: a row per problem; episodes: per conversation; tokens (trl): per training row."),
    ] = None,
    sql: Annotated[str | None, typer.Option(help="Which episodes: SQL with a column episode_id. Default: all.")] = None,
    training_set: Annotated[str | None, typer.Option(help="Which episodes: those of this training set.")] = None,
    use: Annotated[str, typer.Option(help="What the copy is for: training or evaluation.")] = "training",
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
) -> None:
    """Write a selection as a dataset that verl or TRL reads. What a licence, a gate or a split withholds stays here.

    Example: lakeloop export --format trl --to sft.jsonl --sql "select episode_id from rewards where outcome = 1"
    """
    from lakehouse.exchange import FORMS
    from lakehouse.exchange import export as write

    if sql and training_set:
        raise typer.BadParameter("give --sql or --training-set, not both")
    chosen = shape or next(iter(FORMS.get(form, {"prompts": None})))
    done = write(None, form, chosen, to, episodes=sql, training_set_id=training_set, use=use)
    if as_json:
        typer.echo(json.dumps({"rows": done.rows, "episodes": done.episodes, "left_out": done.left_out}))
        return
    left = "".join(f", {count} left out: {reason}" for reason, count in done.left_out.items())
    typer.echo(f"{to}: {done.rows} {chosen} of {done.episodes} episodes{left}")
