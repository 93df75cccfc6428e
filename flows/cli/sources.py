"""`sources list` and `declare`: licence, allowed uses, consent, privacy and retention of the data of each source."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

console = Console()

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]

sources_app = typer.Typer(
    no_args_is_help=True,
    help="""Sources: what may be done with the data of each.

A source is what `source` of a problem names, `external` for outside applications whose problem is not in the lake, and `*` the
default for every source without a declaration of its own. The newest declaration holds.""",
)


def add_to(app: typer.Typer) -> None:
    app.add_typer(sources_app, name="sources", rich_help_panel="Lake")


@sources_app.command("list")
def list_sources(as_json: Json = False) -> None:
    """Every source with what holds for it, also where nobody has declared anything."""
    from lakehouse.sources import listed

    rows = listed(None)
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return
    table = Table("source", "problems", "declared", "licence", "uses", "consent", "privacy", "days")
    for row in rows:
        declared = row["declared"] or "no: built-in default"
        uses = ", ".join(row["allowed_uses"]) if row["allowed_uses"] is not None else "as each problem says"
        cells = (
            row["source"],
            row["problems"],
            "yes" if declared == row["source"] else declared,
            row["licence"] or "as each problem says",
            uses or "none",
            row["consent"] or "",
            row["privacy"],
            row["retention_days"] or "",
        )
        table.add_row(*(escape(str(cell)) for cell in cells))
    console.print(table)


@sources_app.command("declare")
def declare_source(
    source: Annotated[str, typer.Argument(help="The source's name, external, or * for all without one of their own.")],
    licence: Annotated[str | None, typer.Option(help="An SPDX name, or the contract.")] = None,
    allowed_uses: Annotated[
        str | None,
        typer.Option(
            help="Of training, evaluation, export, with commas between; empty for none. Only training lets a "
            "model learn from it."
        ),
    ] = None,
    consent: Annotated[
        str | None, typer.Option(help="Of the people whose data it is: given, withheld, not_needed or unknown.")
    ] = None,
    privacy: Annotated[
        str | None,
        typer.Option(
            help="What happens to secrets and personal data in its episodes: mask replaces them, quarantine "
            "refuses the episode, allow does not look."
        ),
    ] = None,
    retention_days: Annotated[
        int | None, typer.Option(help="Days after which its content is removed; 0 for the tables' own rule.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Declare what may be done with a source's data, from now on.

    The first declaration of a source says everything but the retention; a later one only what changes. The act is in the audit.
    Episodes that have landed stay as they are: `lakeloop erase` removes them.

        lakeloop sources declare external --licence "contract 12" --allowed-uses training,evaluation --consent given --privacy mask
    """
    from lakehouse.sources import declare, listed

    declared = declare(
        None,
        source,
        licence=licence,
        allowed_uses=None if allowed_uses is None else [use for use in map(str.strip, allowed_uses.split(",")) if use],
        consent=consent,
        privacy=privacy,
        retention_days=retention_days,
    )
    if as_json:
        typer.echo(declared.model_dump_json())
        return
    console.print(
        f"{source}: privacy {declared.privacy}, uses {', '.join(declared.allowed_uses) or 'none'}, "
        f"consent {declared.consent}, licence {declared.licence}",
        highlight=False,
        markup=False,
    )
    if source not in ("*", "external") and not any(row["problems"] for row in listed(None) if row["source"] == source):
        console.print(
            f"no problem in the lake is of source {source!r} so far: see `lakeloop sources list`", markup=False
        )
