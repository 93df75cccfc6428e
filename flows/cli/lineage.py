"""`why`, `where-used`, `bisect`, `ledger`, `filters`: where versions and tokens come from, and where they went."""

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from lakehouse.lineage.accounts import Account
    from lakehouse.lineage.bisect import Bisected
    from lakehouse.lineage.why import Fact, Why

console = Console()

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
SHOWN = 12  # items of one kind on the page; --json and SQL have all


def add_to(app: typer.Typer) -> None:
    app.command(rich_help_panel="Lake")(why)
    app.command("where-used", rich_help_panel="Lake")(where_used)
    app.command(rich_help_panel="Lake")(bisect)
    app.command(rich_help_panel="Lake")(ledger)
    app.command(rich_help_panel="Lake")(filters)


def why(
    version: Annotated[str, typer.Argument(help="A model version, such as tiny@7.")],
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Select its training set once more from what it pinned; exit 1 if it differs."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Everything that made a model version: rows, problems, rubrics, filters, engines, weights, data versions, code, parents.

    The same in SQL: `lakeloop query "from provenance where version = 7"`, and `ancestry` and
    `descent` for the versions it comes from.
    """
    from lakehouse.lineage.why import why as asked

    found = asked(None, version, verify=verify)
    if as_json:
        typer.echo(found.model_dump_json())
    else:
        _show_why(found)
    if verify and found.same is not True:
        raise typer.Exit(1)


def where_used(
    episode: Annotated[str, typer.Argument(help="An episode's id.")],
    as_json: Json = False,
) -> None:
    """Every training set that holds an episode, and every model version it reached, also through later versions.

    The same in SQL: `lakeloop query "from where_used where episode_id = '...'"`.
    """
    from lakehouse.lineage.used import where_used as asked

    uses = asked(None, episode)
    if as_json:
        typer.echo(json.dumps([use.model_dump() for use in uses]))
        return
    if not uses:
        console.print(f"{episode} is in no training set", highlight=False)
        return
    rows = [
        (
            use.training_set_id,
            use.rows,
            use.trained_tokens,
            ", ".join(f"{one.name}@{one.version}" for one in use.versions if one.distance == 0) or "none so far",
            ", ".join(f"{one.name}@{one.version}" for one in use.versions if one.distance > 0),
        )
        for use in uses
    ]
    _table(("training set", "rows", "trained tokens", "trained", "and through them"), rows)


def bisect(
    older: Annotated[str, typer.Argument(help="The version that was good, such as tiny@3.")],
    newer: Annotated[str, typer.Argument(help="The version that is worse, such as tiny@7.")],
    as_json: Json = False,
) -> None:
    """What changed between two versions, where on the way success fell, and which change most likely explains it.

    Rubric, filter, data and engine of the older version are put in place of the newer's one at a time, and the selection is
    decided again over the same pinned tables: seconds, without a GPU.
    """
    from lakehouse.lineage.bisect import bisect as asked

    found = asked(None, older, newer)
    if as_json:
        typer.echo(found.model_dump_json())
    else:
        _show_bisected(found)


def ledger(
    training_set: Annotated[str | None, typer.Option(help="Only this training set.")] = None,
    run: Annotated[str | None, typer.Option(help="Only what this run sampled.")] = None,
    model: Annotated[str | None, typer.Option(help="Only the set that trained this version, such as tiny@7.")] = None,
    price_per_hour: Annotated[
        float | None, typer.Option(min=0, help="Price of an hour of the machines that play episodes, in your currency.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many sets, the newest first.")] = 5,
    as_json: Json = False,
) -> None:
    """What became of every sampled token: sampled = trained + masked(reason) + dropped(reason). Exits 1 where there is a gap.

    The same in SQL, by run and by the version that sampled: `lakeloop query "from token_ledger"`; `training_costs` for what
    trained tokens take.
    """
    from lakehouse.lineage.accounts import accounts

    found = accounts(None, training_set_id=training_set, run_id=run, model=model, price_per_hour=price_per_hour)
    wrong = [one for one in found if one.gap or one.rows_differ]
    found = found[:limit]
    if as_json:
        typer.echo(json.dumps([one.model_dump() for one in found]))
    elif not found:
        console.print("no training set fits: `lakeloop train` makes them")
    for one in [] if as_json else found:
        _show_account(one)
    if wrong:
        typer.echo(f"the ledger does not close in {', '.join(one.training_set_id for one in wrong)}", err=True)
        raise typer.Exit(1)


def filters(as_json: Json = False) -> None:
    """The filters that `lakeloop train --filter a+b+c` puts together, with their settings and defaults."""
    from lakehouse.selection.filters import known

    there = known().values()
    if as_json:
        rows = [
            {"filter": one.name, "keeps": one.keeps, "settings": dict(one.settings), "yours": one.own} for one in there
        ]
        typer.echo(json.dumps(rows))
        return
    settings = {one.name: ", ".join(f"{name}={value}" for name, value in one.settings.items()) for one in there}
    _table(("filter", "keeps", "settings"), [(one.name, one.keeps, settings[one.name]) for one in there])


def _show_why(found: "Why") -> None:
    held = found.version
    console.print(
        f"[bold]{escape(held.name)}@{held.version}[/bold], {escape(held.stage)}, made {held.created_at:%Y-%m-%d %H:%M}"
    )
    if found.ledger is None:
        console.print("not trained here: weights that were registered as they were")
    else:
        console.print(
            f"trained on {held.training_set_id}: {found.rows:,} rows, {found.trained_tokens:,} tokens of "
            f"{len(found.episodes):,} episodes over {len(found.problems):,} problems",
            highlight=False,
        )
    for name, values in (("licences", held.licences), ("may be used for", held.allowed_uses)):
        if values is not None:
            console.print(f"{name}: {escape(', '.join(values) or 'nothing')}", highlight=False)
    for aspect in (
        "version",
        "selection",
        "setting",
        "filter",
        "rubric",
        "data",
        "run",
        "engine",
        "sampling",
        "weights",
        "table",
    ):
        _show_facts(aspect, [fact for fact in found.facts if fact.aspect == aspect])
    if found.ledger is not None:
        _show_fates(found.ledger.sampled, found.ledger.trained, found.ledger.masked, found.ledger.dropped)
    if found.ancestors:
        _table(
            ("parents", "stage", "training set", "rows", "trained tokens", "commit"),
            [
                (
                    f"{held.name}@{one.version}",
                    one.stage,
                    one.training_set_id,
                    one.rows,
                    one.trained_tokens,
                    one.commit[:12],
                )
                for one in found.ancestors
            ],
        )
    if found.gates:
        _table(
            ("gate", "against", "decided", "by", "reasons"),
            [
                (
                    "passed" if one.passed else "refused",
                    None if one.champion is None else f"{held.name}@{one.champion}",
                    f"{one.decided_at:%Y-%m-%d %H:%M}",
                    one.decided_by,
                    "; ".join(one.reasons),
                )
                for one in found.gates
            ],
        )
    if found.same is not None:
        console.print(
            "selected once more: the same rows" if found.same else "[red]selected once more: other rows[/red]"
        )
    if found.not_the_same:
        console.print(f"cannot be selected once more: {escape(found.not_the_same)}")


def _show_facts(aspect: str, facts: Sequence["Fact"]) -> None:
    if not facts:
        return
    unit = {"weights": "tokens", "engine": "calls", "sampling": "calls"}.get(aspect, "episodes")
    rows = [(one.item, one.value, None if one.amount is None else f"{one.amount:,} {unit}") for one in facts[:SHOWN]]
    if len(facts) > SHOWN:
        rows.append((f"and {len(facts) - SHOWN} more", None, None))
    _table((aspect, "", ""), rows)


def _show_bisected(found: "Bisected") -> None:
    if not found.descends:
        console.print(
            f"{found.name}@{found.path[-1]} does not come from {found.name}@{found.path[0]}: they are compared as they are"
        )
    if found.evaluations:
        _table(
            ("held-out success", "kind", "episodes", "success"),
            [
                (f"{found.name}@{one.version}", one.kind, one.episodes, f"{one.success:.1%}")
                for one in found.evaluations
            ],
        )
    _table(
        ("from", "to", "changed", "what", "before", "after"),
        [(one.older, one.newer, one.aspect, one.item, one.before, one.after) for one in found.changes],
    )
    step = f"{found.suspect[0]} to {found.suspect[1]}"
    if found.effects:
        _table(
            (f"{step}: without it", "episodes", "without", "only now", "only without", "training signal changed"),
            [
                (one.what, one.episodes, one.episodes_without, one.only_now, one.only_without, f"{one.share:.1%}")
                for one in found.effects
            ],
        )
    if found.not_measured:
        console.print(f"effects were not measured: {escape(found.not_measured)}", highlight=False)
    fell = "" if not found.fell or found.fell <= 0 else f", where success fell by {100 * found.fell:.1f} points"
    console.print(f"[bold]{step}{fell}:[/bold] {escape(found.verdict)}", highlight=False)


def _show_account(one: "Account") -> None:
    console.print(
        f"[bold]{one.training_set_id}[/bold] {escape(', '.join(one.versions)) or 'trained no version so far'}"
    )
    _show_fates(one.sampled, one.trained, one.masked, one.dropped)
    if one.gap or one.rows_differ:
        console.print(f"[red]gap of {one.gap} tokens[/red]" if one.gap else "[red]the rows say otherwise[/red]")
    cost = one.cost
    if cost is not None and cost.seconds_per_trained_token is not None:
        money = (
            ""
            if cost.cost is None
            else f", {cost.cost:.4g} in all, {cost.cost_per_million_trained_tokens:.4g} per million"
        )
        console.print(
            f"a trained token took {cost.seconds_per_trained_token:.3g} s of episodes, {cost.prompt_per_trained_token:.1f} "
            f"prompt and {cost.sampled_per_trained_token:.1f} sampled tokens{money}",
            highlight=False,
        )


def _show_fates(sampled: int, trained: int, masked: Any, dropped: Any) -> None:
    rows = [("sampled", None, sampled), ("trained", None, trained)]
    rows += [("masked", reason, tokens) for reason, tokens in masked.items()]
    rows += [("dropped", reason, tokens) for reason, tokens in dropped.items()]
    _table(("tokens", "reason", "count"), [(fate, reason, f"{tokens:,}") for fate, reason, tokens in rows])


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    table = Table(*map(escape, columns), title_justify="left")
    for row in rows:
        table.add_row(*("" if cell is None else escape(str(cell)) for cell in row))
    console.print(table)
