"""`up`, `down`, `status`: the local stack."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from tasks.stack import State

console = Console()

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def add_to(app: typer.Typer) -> None:
    for command in (up, down, status):
        app.command(rich_help_panel="Stack")(command)


def up(
    model: Annotated[str | None, typer.Option(help="tiny, smollm2, a Hugging Face folder or a hub name.")] = None,
) -> None:
    """Start Prefect, MLflow, the engine, the gateway, the worker and the watcher; adopt what already runs.

    Ports and databases are settings: LAKELOOP_PREFECT_PORT, LAKELOOP_ENGINE_URL, LAKELOOP_PREFECT_DATABASE and so on.
    State lives under LAKELOOP_HOME (default .lakeloop/).
    """
    bring_up(model)
    show()


def down() -> None:
    """End what `up` started, and nothing else."""
    from tasks.stack import Settings, stack

    ended = stack.down(Settings())
    console.print(f"ended: {', '.join(ended)}" if ended else "nothing of this home folder was running")


def status(as_json: Json = False) -> None:
    """Say how each service is. Exit status 1 unless all are up."""
    states = show(as_json=as_json)
    if any(state.condition not in ("running", "adopted") for state in states):
        raise typer.Exit(1)


def bring_up(model: str | None = None) -> float:
    """Bring the stack up, a line per event; the seconds it took."""
    import time

    from tasks.stack import Settings, stack

    started = time.monotonic()

    def tell(service: str, event: str, seconds: float) -> None:
        console.print(f"  [dim]{seconds:5.1f} s[/dim]  {service:<12} {event}", highlight=False)

    settings = Settings() if model is None else Settings(model=model)
    stack.up(settings, tell)
    return time.monotonic() - started


def show(*, as_json: bool = False) -> "list[State]":
    """Print how the services are, as a table or JSON; the states."""
    from tasks.stack import Settings, stack

    states = stack.status(Settings())
    if as_json:
        typer.echo(json.dumps([asdict(state) for state in states], indent=2))
        return states
    table = Table("service", "condition", "url", "pid", "detail")
    for state in states:
        colour = {"running": "green", "adopted": "green", "starting": "yellow"}.get(state.condition, "red")
        table.add_row(
            state.name,
            f"[{colour}]{state.condition}[/{colour}]",
            (state.url or "").removesuffix("/api"),
            str(state.pid or ""),
            state.detail,
        )
    console.print(table)
    return states
