"""`query`, `tables`, `episodes`, `notebook`: reading the lake."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flows.cli.radar import radar

if TYPE_CHECKING:
    import polars as pl

    from lakehouse.query.named import NamedQuery

console = Console()

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts, one array of objects.")]

episodes_app = typer.Typer(no_args_is_help=True, help="List episodes, or read one.")


def add_to(app: typer.Typer) -> None:
    app.command(rich_help_panel="Lake")(query)
    app.command(rich_help_panel="Lake")(tables)
    app.command(rich_help_panel="Lake")(radar)
    app.command(rich_help_panel="Lake")(notebook)
    app.add_typer(episodes_app, name="episodes", rich_help_panel="Lake")


def query(
    sql: Annotated[str | None, typer.Argument(help="DuckDB SQL, such as 'from success_by_version'.")] = None,
    named: Annotated[str | None, typer.Option(help="One of the questions of --list, in place of SQL.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter of the named query, NAME=VALUE; may be repeated.")
    ] = None,
    listing: Annotated[
        bool, typer.Option("--list", help="The named queries with their questions and parameters.")
    ] = False,
    training_set: Annotated[
        str | None, typer.Option(help="See the tables as they were when this training set was selected.")
    ] = None,
    role: Annotated[str | None, typer.Option(help="See what this role may see.")] = None,
    as_json: Json = False,
    rows: Annotated[int, typer.Option(min=1, help="Rows shown in a table.")] = 50,
) -> None:
    """Query every table and view of the lake with SQL, read-only. `lakeloop tables` lists them.

    Two dozen questions that people ask are there by name: `lakeloop query --list`, docs/queries.md.
    """
    from lakehouse import connect
    from lakehouse.query.named import queries, run_named

    if listing:
        _list(queries(), as_json)
        return
    if (sql is None) == (named is None):
        raise typer.BadParameter("give SQL, or --named NAME (--list shows them)")
    if setting and named is None:
        raise typer.BadParameter("--set is for the parameters of --named")
    pairs = [one.partition("=") for one in setting or []]
    if wrong := [name for name, equals, _ in pairs if not equals]:
        raise typer.BadParameter(f"--set {wrong[0]}: a parameter is NAME=VALUE")
    with connect(training_set=training_set, role=role) as connection:
        if named is not None:
            _show(run_named(connection, named, {name: value for name, _, value in pairs}), as_json, rows)
        elif sql is not None:
            _show(connection.execute(sql).pl(), as_json, rows)


def _list(found: "Sequence[NamedQuery]", as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found]))
        return
    table = Table("name", "question", "parameters")
    for one in found:
        told = "\n".join(f"{p.name} ({p.means}; {p.default})" for p in one.parameters)
        table.add_row(one.name, escape(one.question), escape(told))
    console.print(table)


def _show(found: "pl.DataFrame", as_json: bool, rows: int) -> None:
    if as_json:
        typer.echo(json.dumps(found.to_dicts(), default=_json, ensure_ascii=False))
        return
    table = Table(*map(escape, found.columns))
    for row in found.head(rows).iter_rows():
        table.add_row(*map(_cell, row))
    console.print(table)
    if found.height > rows:
        console.print(f"[dim]{found.height - rows} more rows: --rows or --json shows them[/dim]")


def tables(as_json: Json = False) -> None:
    """List the tables with their grain and the number of rows."""
    from lakehouse import connect
    from lakehouse.schema import TABLES

    with connect() as connection:
        listed = []
        for name, spec in TABLES.items():
            counted = connection.execute(f"select count(*) from {name}").fetchone()  # noqa: S608 - our own names
            listed.append({"table": name, "rows": counted[0] if counted else 0, "grain": spec.grain})
    if as_json:
        typer.echo(json.dumps(listed))
        return
    table = Table("table", "rows", "grain")
    for row in listed:
        table.add_row(str(row["table"]), f"{row['rows']:,}", str(row["grain"]))
    console.print(table)


@episodes_app.command("list")
def list_episodes(
    run: Annotated[str | None, typer.Option(help="Only this run.")] = None,
    limit: Annotated[int, typer.Option(min=1)] = 20,
    as_json: Json = False,
) -> None:
    """The newest episodes."""
    where = "" if run is None else "where run_id = '" + run.replace("'", "''") + "'"
    sql = f"""
        select episode_id, problem_id, purpose, status, model_version, n_calls, n_completion_tokens as tokens,
            round(duration_s, 2) as seconds
        from episodes {where} order by ended_at desc limit {limit}
    """  # noqa: S608 - quoted above
    from lakehouse.query import query as asked

    _show(asked(sql), as_json, limit)


@episodes_app.command("show")
def show_episode(episode_id: str, as_json: Json = False) -> None:
    """A readable trajectory: turns, tool calls, rewards, weight versions."""
    from flows.cli.trajectory import render
    from lakehouse.trajectory import trajectory

    found = trajectory(None, episode_id)
    if as_json:
        typer.echo(json.dumps(asdict(found), default=lambda v: v.model_dump(mode="json"), ensure_ascii=False))
        return
    console.print(render(found))


def notebook(
    edit: Annotated[bool, typer.Option(help="Open the cells for editing; they run when you run them.")] = False,
    headless: Annotated[bool, typer.Option(help="Do not open a browser.")] = False,
    port: Annotated[int, typer.Option(min=1, max=65535)] = 2718,
) -> None:
    """Open the trajectories notebook on this lake, as an app; with --edit as a notebook."""
    import os
    import sys

    from tasks.stack.settings import ROOT

    mode = "edit" if edit else "run"
    command = [sys.executable, "-m", "marimo", mode, str(ROOT / "notebooks" / "trajectories.py"), "--port", str(port)]
    command += ["--host", "127.0.0.1", *(["--headless"] if headless else [])]
    os.execv(sys.executable, command)  # noqa: S606 - the notebook server takes over this terminal


def _json(value: object) -> object:
    """What JSON has no type for: a decimal (DuckDB's sums of integers are some) is a number, the rest is text."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return str(value)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return escape(text if len(text) <= 120 else text[:117] + "...")
