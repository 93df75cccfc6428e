"""`erase`, `erasures`, `audit`, `checks`: what goes, what was done, and whether the lake holds together."""

import json
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from lakehouse.governance.plan import Plan

console = Console()

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def add_to(app: typer.Typer) -> None:
    for command in (erase, erasures, audit, checks):
        app.command(rich_help_panel="Governance")(command)


def erase(
    subject: Annotated[
        str | None, typer.Option(help="Whose data goes: what `subject` of their episodes says, exactly.")
    ] = None,
    episode: Annotated[list[str] | None, typer.Option(help="An episode that goes; may be repeated.")] = None,
    reason: Annotated[str | None, typer.Option(help="Why, for the record; a ticket's number, never a name.")] = None,
    resume: Annotated[str | None, typer.Option(help="Go on with an erasure that was planned or interrupted.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and change nothing.")] = False,
    only_plan: Annotated[
        bool, typer.Option("--plan", help="Write the plan down for the deployment `erase`, and print its id.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Erase everything of a subject, or of single episodes: from every table and old file version, the gateway's journal,
    training runs, work trees, logs and the servers' databases.

    It ends with a scan of every byte of the home folder and the lake for the ids, the name, and pieces of the text and
    tokens; what it finds fails the command. The signed report is a row of `erasures` and files in the home folder's
    `erasures/`. Model versions that were trained on it are marked tainted and lose their aliases. There is no way back.

    Interrupted, the same command goes on. Look first: `lakeloop erase --subject customer-17 --dry-run`.
    """
    from lakehouse.governance import plan as plans

    if resume is not None:
        if subject or episode or reason:
            raise typer.BadParameter("--resume has its subject, episodes and reason already")
        made = plans.load(resume)
        plans.refresh(made)
    else:
        made = _planned(subject, episode or [], reason, dry_run=dry_run)
    told = {
        "erasure_id": made.erasure_id, "episodes": len(made.episode_ids), "rows": made.rows, "removed": made.removed,
        "problems": len(made.problem_ids), "work_trees": len(made.trees), "training_sets": made.training_sets,
        "tainted": made.tainted,
    }  # fmt: skip
    if not as_json:
        _show(made)
    if dry_run:
        if as_json:
            typer.echo(json.dumps(told))
        return
    if only_plan:
        made.save()
        typer.echo(
            json.dumps(told) if as_json else f"planned: run the deployment `erase` with erasure_id {made.erasure_id}"
        )
        return
    if not yes:
        typer.confirm("Erase this for good?", abort=True, err=as_json)
    from flows.cli.runs import call, check_stack, point_at_stack

    point_at_stack()
    check_stack()
    made.save()
    row = call("erase", {"erasure_id": made.erasure_id}, Console(stderr=True) if as_json else console)
    typer.echo(
        json.dumps(row) if as_json else f"erased; the report is in erasures/{made.erasure_id}.md of the home folder"
    )


def _planned(subject: str | None, episodes: list[str], reason: str | None, *, dry_run: bool) -> "Plan":
    from lakehouse.governance import audit, plan

    if reason is None and not dry_run:
        raise typer.BadParameter("say why: --reason 'ticket 4711'")
    from tasks.erase import recorded

    return plan.plan(
        None,
        subject=subject,
        episode_ids=episodes,
        reason=reason or "",
        requested_by=audit.user(),
        recorded=recorded,
    )


def _show(made: "Plan") -> None:
    table = Table("table", "rows that go", title=f"erasure {made.erasure_id}")
    for name, number in made.rows.items():
        table.add_row(name, f"{number:,}")
    console.print(table)
    console.print(f"episodes: {len(made.episode_ids):,}; work trees: {len(made.trees):,}")
    console.print(f"training sets that lose rows: {', '.join(made.training_sets) or 'none'}")
    console.print(f"model versions that become tainted: {', '.join(made.tainted) or 'none'}", highlight=False)


def erasures(as_json: Json = False) -> None:
    """List what was erased, the newest first, and whether each signature holds; erasures under way too."""
    from lakehouse.governance import erase as done
    from lakehouse.governance import plan

    rows = done.erasures()
    listed: list[dict[str, Any]] = [
        {
            "erasure_id": row.erasure_id, "at": row.erased_at.isoformat(), "reason": row.reason, "by": row.requested_by,
            "episodes": len(row.episode_ids), "finished": row.scanned is not None, "signature_holds": done.verify(row),
            "training_sets": row.training_sets or [], "tainted": row.tainted,
        }
        for row in rows
    ]  # fmt: skip
    known = {row.erasure_id for row in rows}
    waiting = [one.erasure_id for one in plan.under_way() if one.erasure_id not in known]
    if as_json:
        typer.echo(json.dumps({"erasures": listed, "planned": waiting}))
        return
    table = Table("erasure", "at", "reason", "episodes", "finished", "signature", "tainted")
    for one in listed:
        state = "yes" if one["finished"] else f"no: lakeloop erase --resume {one['erasure_id']}"
        holds = "holds" if one["signature_holds"] else "[red]does not hold[/red]"
        cells = (one["erasure_id"], str(one["at"])[:16], one["reason"], one["episodes"], state)
        table.add_row(*(escape(str(cell)) for cell in cells), holds, ", ".join(one["tainted"]) or "none")
    console.print(table)
    for name in waiting:
        console.print(f"planned, not begun: {name}")


def audit(
    action: Annotated[str | None, typer.Option(help="Only this action, such as 'erase' or 'review'.")] = None,
    object: Annotated[str | None, typer.Option("--object", help="Only what names this: a source, a version.")] = None,
    actor: Annotated[str | None, typer.Option(help="Only acts of whom this names: a user, a flow run.")] = None,
    since: Annotated[datetime | None, typer.Option(help="Only from then on, UTC.")] = None,
    limit: Annotated[int, typer.Option(min=1)] = 50,
    as_json: Json = False,
) -> None:
    """Who did what to the lake: every act that changes what may be seen or trained on, the newest first."""
    from datetime import UTC

    from lakehouse.governance import audit as log

    start = since.replace(tzinfo=UTC) if since is not None else None
    found = log.entries(action=action, object=object, actor=actor, since=start, limit=limit)
    if as_json:
        typer.echo(json.dumps([row | {"detail": json.loads(row["detail"])} for row in found.to_dicts()], default=str))
        return
    table = Table("at", "actor", "action", "object", "detail")
    for row in found.to_dicts():
        cells = (f"{row['noted_at']:%Y-%m-%d %H:%M:%S}", row["actor"], row["action"], row["object"], row["detail"])
        table.add_row(*map(escape, cells))
    console.print(table)


def checks(
    whole: Annotated[
        bool, typer.Option("--whole", help="Read every file to its end, to find those that are damaged.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run every check of `lakehouse/sql/checks`: no rows means it passes. Exit status 1 where one that matters fails.

    `lakeloop query "from checks.NAME"` shows the rows of one.
    """
    from lakehouse.governance.checks import run

    results = run(whole=whole)
    if as_json:
        typer.echo(json.dumps([{"check": r.name, "rows": r.rows, "level": r.level, "about": r.about} for r in results]))
    else:
        table = Table("check", "result", "about")
        for result in results:
            table.add_row(result.name, result.told, escape(result.about))
        console.print(table)
    if any(result.failed for result in results):
        raise typer.Exit(1)
