"""`up`, `down`, `status`: the local stack."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from tasks.stack import State
    from tasks.stack.now import Now

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


def status(
    as_json: Json = False,
    services_only: Annotated[
        bool, typer.Option("--services", help="Only the services, not what the loop waits for.")
    ] = False,
) -> None:
    """Say how each service is, and what the loop waits for: its step, since when, versions, and who holds what is shared.

    Exit status 1 unless all services are up. The JSON is a list of services with --services, else an object.
    """
    from tasks.stack import Settings, stack

    states = stack.status(Settings())
    found = None if services_only else _now()
    if as_json:
        services = [asdict(state) for state in states]
        told = services if found is None else {"services": services, **found.model_dump(mode="json")}
        typer.echo(json.dumps(told, indent=2))
    else:
        _show_services(states)
        if found is not None:
            _show_now(found)
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


def show() -> None:
    """Print how the services are."""
    from tasks.stack import Settings, stack

    _show_services(stack.status(Settings()))


def _show_services(states: "list[State]") -> None:
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


def _now() -> "Now":
    from tasks.stack import Settings
    from tasks.stack.now import now

    return now(Settings())


def _show_now(found: "Now") -> None:
    champion, challenger = (str(one or "none") for one in (found.champion, found.challenger))
    console.print(f"served {found.served or 'unknown'}, champion {champion}, challenger {challenger}", highlight=False)
    if split := found.split:
        console.print(
            f"sessions are split until {split.until:%Y-%m-%d %H:%M:%S}: {split.share:.0%} of the new ones for version "
            f"{split.challenger}, the rest for {split.champion}",
            highlight=False,
        )
        if not split.canary:
            console.print(
                f"no canary is at work, that one died: `lakeloop canary {split.challenger}` begins anew, `lakeloop reconcile` "
                "ends it",
                highlight=False,
            )
    for run in found.runs:
        since = f" since {run.since:%Y-%m-%d %H:%M:%S}" if run.since else ""
        console.print(f"run {run.name} is {run.state.lower()}{since}", highlight=False)
    for loop in found.loops:
        console.print(
            f"loop {loop.loop_id}: step {loop.step}, waits for {loop.waits_for} since {loop.since:%Y-%m-%d %H:%M:%S}; groups: "
            f"{loop.in_flight} in flight or broken off, {loop.settled} settled, of these {loop.consumed} consumed, "
            f"{loop.waiting} waiting, {loop.failed} failed",
            highlight=False,
        )
    if found.loops and not found.runs:
        console.print("no loop is at work: `lakeloop improve --loop-id ID` goes on with one", highlight=False)
    groups = sum(found.waiting.values())
    if groups:
        console.print(
            f"{groups} groups of {len(found.waiting)} runs wait to be trained on; `lakeloop learn` begins at {found.enough}",
            highlight=False,
        )
    if found.places:
        told = ", ".join(f"{one.name} {one.taken} of {one.of}" for one in found.places)
        console.print(f"places taken: {told}", highlight=False)
    for one in found.unknown:
        console.print(f"not known: {one}", highlight=False, markup=False)
