"""`query`, `episodes`, `problems`, `notebook`: reading the lake."""

import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from lakehouse.records import Problem

console = Console()

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts, one array of objects.")]

episodes_app = typer.Typer(no_args_is_help=True, help="List episodes, or read one.")
problems_app = typer.Typer(no_args_is_help=True, help="The problems models are trained and evaluated on.")


def add_to(app: typer.Typer) -> None:
    app.command(rich_help_panel="Lake")(query)
    app.command(rich_help_panel="Lake")(tables)
    app.command(rich_help_panel="Lake")(notebook)
    app.add_typer(episodes_app, name="episodes", rich_help_panel="Lake")
    app.add_typer(problems_app, name="problems", rich_help_panel="Lake")


def query(
    sql: Annotated[str, typer.Argument(help="DuckDB SQL, such as 'from success_by_version'.")],
    as_json: Json = False,
    rows: Annotated[int, typer.Option(min=1, help="Rows shown in a table.")] = 50,
) -> None:
    """Query every table and view of the lake with SQL. `lakeloop tables` lists them."""
    from lakehouse.query import query as run

    found = run(sql)
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
    query(sql, as_json=as_json, rows=limit)


@episodes_app.command("show")
def show_episode(episode_id: str, as_json: Json = False) -> None:
    """A readable trajectory: turns, tool calls, rewards, weight versions."""
    from dataclasses import asdict

    from flows.cli.trajectory import render
    from lakehouse.trajectory import trajectory

    found = trajectory(None, episode_id)
    if as_json:
        typer.echo(json.dumps(asdict(found), default=lambda v: v.model_dump(mode="json"), ensure_ascii=False))
        return
    console.print(render(found))


@problems_app.command("load")
def load_problems(
    kinds: Annotated[list[str] | None, typer.Argument(help="Kinds to load. Default: all.")] = None,
) -> None:
    """Put the shipped problems into the lake. One that changed is added as a new edition; episodes keep the one they saw."""
    from lakehouse.write import Writer
    from sandboxes.problems.library import LOADERS, load

    for kind in kinds or LOADERS:
        added = Writer().put_problems(load(kind))
        console.print(f"{kind}: {added.rows} new problems or editions")


@problems_app.command("import")
def import_problems(
    form: Annotated[str, typer.Argument(help="The form they are in, such as gsm8k; docs/problems.md has them all.")],
    path: Annotated[Path, typer.Argument(help="The file (.jsonl, .parquet) or folder.")],
    name: Annotated[str, typer.Option(help="Name of the collection, for the problems' ids.")],
    licence: Annotated[str, typer.Option(help="The collection's licence, such as MIT.")],
    split: Annotated[str, typer.Option(help="train or eval: imported problems are not divided.")] = "train",
    uses: Annotated[
        str, typer.Option(help="Without training among them, nothing is trained on.")
    ] = "training,evaluation",
    image: Annotated[str | None, typer.Option(help="Image of the boxes, for a form that needs one of its own.")] = None,
    corpus: Annotated[
        str | None, typer.Option(help="What search-r1 rows search: a corpus by name, or a file of passages.")
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave bad rows out instead of refusing the file.")
    ] = False,
    sample: Annotated[
        int | None, typer.Option(min=0, help="Run the gates on so many only, and trust the rest.")
    ] = None,
    backend: Annotated[str, typer.Option(help="Where code runs: auto, docker or bubblewrap.")] = "auto",
) -> None:
    """Take problems of others into the lake. Each goes through both gates: the oracle must solve it, doing nothing must not.

    One that fails is in the lake as such, and never trained on. With --sample, a failure among the sample refuses them all.
    """
    from lakehouse.write import Writer
    from sandboxes.problems.imports import read, terms

    allowed = [use.strip() for use in uses.split(",") if use.strip()]
    own = {"image": image, "corpus": corpus, "skip_bad": skip_bad}
    found = read(form, path, terms(name=name, split=split, licence=licence, allowed_uses=allowed, **own))
    if form == "external":
        pass  # nothing here plays these: the application ran the gates, and its rows say how they ended
    elif sample is None:
        found = _gated(found, backend)
    elif not _all_passed(_gated(_spread(found, sample), backend)):
        raise typer.Exit(1)
    added = Writer().put_problems(found)
    console.print(f"{name}: {added.rows} new problems or editions")


@problems_app.command("check")
def check_problems(
    kind: Annotated[str, typer.Argument(help="Kind of problem: python, search or swe.")],
    sample: Annotated[int, typer.Option(min=1, help="How many, evenly spread over the shipped set.")] = 20,
    backend: Annotated[str, typer.Option(help="Where code runs: auto, docker or bubblewrap.")] = "auto",
) -> None:
    """Put shipped problems through both gates again: the oracle must solve them, doing nothing must not. No model needed."""
    from sandboxes.problems.library import load

    if not _all_passed(_gated(_spread(load(kind), sample), backend)):
        raise typer.Exit(1)


def _spread(problems: "Sequence[Problem]", sample: int) -> "Sequence[Problem]":
    """So many of them, evenly spread."""
    return problems[:: max(1, len(problems) // max(1, sample))][:sample]


def _all_passed(problems: "Sequence[Problem]") -> bool:
    return all(problem.oracle_passed and problem.null_failed for problem in problems)


def _gated(problems: "Sequence[Problem]", backend: str) -> "list[Problem]":
    """The problems with what the gates say of each now; the failures are shown, and the number of those that pass."""
    import asyncio

    from sandboxes import backends
    from sandboxes.problems.gates import gates
    from sandboxes.problems.kinds import kind_of

    box = backends.choose(backend)
    found = []
    for problem in problems:
        said = asyncio.run(gates(kind_of(problem.kind), problem, box))
        found.append(problem.model_copy(update={"oracle_passed": said.oracle_passed, "null_failed": said.null_failed}))
        if not said.passed:
            console.print(f"{problem.problem_id}: {said}", highlight=False)
    passed = sum(problem.oracle_passed and problem.null_failed for problem in found)
    console.print(f"{passed} of {len(found)} pass both gates")
    return found


@problems_app.command("list")
def list_problems(as_json: Json = False) -> None:
    """Problems by kind, source and split, with how many passed both gates."""
    query(
        """
        select kind, source, split, count(*) as problems, count_if(oracle_passed and null_failed) as gated,
            round(avg(difficulty), 2) as difficulty
        from problems group by all order by all
        """,
        as_json=as_json,
        rows=100,
    )


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
