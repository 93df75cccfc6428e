"""`rubric list`, `test` and `diff`: what rewards are computed by, whether it does what it says, and what another would change."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from lakehouse.rubrics import Difference

console = Console()

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]

rubric_app = typer.Typer(
    no_args_is_help=True,
    help="""Rubrics: SQL over evidence, one file per version.

A reference names a version and, where it has parameters, other values of them: `swe@2`, `judge@1:pass=0.8`. Your own rubrics
are files NAME@VERSION.sql in `<home>/rubrics` or LAKELOOP_RUBRICS. `lakeloop label --rubric REFERENCE` judges with one.""",
)


def add_to(app: typer.Typer) -> None:
    app.add_typer(rubric_app, name="rubric", rich_help_panel="Lake")


@rubric_app.command("list")
def list_rubrics(as_json: Json = False) -> None:
    """Every version of every rubric: what it judges, its parameters, its examples, the episodes it has judged."""
    from lakehouse.query import connect
    from lakehouse.rubrics import rubrics
    from lakehouse.rubrics.examples import read

    with connect() as connection:
        counted = connection.execute(
            "select rubric || '@' || rubric_version as title, count(*) from latest_rewards group by title"
        ).fetchall()
    judged = dict(counted)
    rows: list[dict[str, Any]] = [
        {
            "rubric": one.title,
            "kinds": list(one.kinds) or ["every"],
            "parameters": {name: {"default": p.default, "about": p.about} for name, p in one.parameters.items()},
            "grain": one.header["grain"],
            "inputs": one.header["inputs"],
            "examples": len(read(one)),
            "judged": judged.get(one.title, 0),
            "file": str(one.path),
            "shipped": one.shipped,
        }
        for one in rubrics()
    ]
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return
    table = Table("rubric", "kinds", "parameters", "examples", "judged", "file")
    for row in rows:
        parameters = "\n".join(f"{name} = {p['default']}: {p['about']}" for name, p in row["parameters"].items())
        where = "shipped" if row["shipped"] else row["file"]
        cells = (row["rubric"], ", ".join(row["kinds"]), parameters, row["examples"], f"{row['judged']:,}", where)
        table.add_row(*(escape(str(cell)) for cell in cells))
    console.print(table)


@rubric_app.command("test")
def test_rubrics(
    references: Annotated[
        list[str] | None, typer.Argument(metavar="[RUBRIC]...", help="Such as swe@2. Default: all.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the given/expect examples beside each rubric (NAME@VERSION.yaml). They need no stack and no lake.

    The exit status is 1 where an example does not hold, or where a rubric that was named has none.
    """
    from lakehouse.rubrics import asked, check_examples, rubrics

    chosen = [asked(reference).rubric for reference in references or ()] or rubrics()
    rows: list[dict[str, Any]] = []
    untested: list[str] = []
    for rubric in chosen:
        found = check_examples(rubric)
        rows += [{"rubric": one.rubric, "example": one.example, "wrong": one.wrong} for one in found]
        untested += [] if found else [rubric.title]
    failed = [row for row in rows if row["wrong"]]
    if as_json:
        typer.echo(json.dumps({"examples": rows, "untested": untested}, ensure_ascii=False))
    else:
        for row in failed:
            console.print(
                f"[red]{row['rubric']}[/red] {escape(row['example'])}: {escape(row['wrong'])}", highlight=False
            )
        for title in untested:
            console.print(f"[yellow]{title}[/yellow] has no examples", highlight=False)
        console.print(f"{len(rows) - len(failed)} of {len(rows)} examples hold", highlight=False)
    if failed or (references and untested) or not rows:
        raise typer.Exit(1)


@rubric_app.command("diff")
def diff_rubrics(
    old: Annotated[str, typer.Argument(help="Such as swe@1.")],
    new: Annotated[str, typer.Argument(help="Such as swe@2, or the same version with other parameters.")],
    run: Annotated[list[str] | None, typer.Option(help="Only episodes of this run; may be repeated.")] = None,
    where: Annotated[str, typer.Option(help="Only these episodes: SQL over the columns of `episodes`.")] = "true",
    limit: Annotated[int, typer.Option(min=0, help="Episodes that are shown.")] = 20,
    picture: Annotated[Path | None, typer.Option(help="Write a picture of it to this file, such as diff.png.")] = None,
    as_json: Json = False,
) -> None:
    """Whose outcome, reward and advantage another rubric changes, by how much, and which groups it makes trainable.

    Both judge the evidence that is there, now: nothing is written, nothing is sampled, no GPU and no stack is needed. An
    advantage of 0 is no gradient: not scored, or a group that cannot be trained on.
    """
    from lakehouse.rubrics import compare

    runs = ", ".join("'" + name.replace("'", "''") + "'" for name in run or ())
    selection = f"run_id in ({runs}) and (\n{where}\n)" if run else where
    found = compare(None, old, new, where=selection, limit=None if picture else limit)
    if picture:
        draw(found, picture)
        found = found.model_copy(update={"changed": found.changed[:limit]})
    if as_json:
        typer.echo(json.dumps(found.model_dump(), ensure_ascii=False))
        return
    _show(found)


def _show(found: "Difference") -> None:
    console.print(
        f"{escape(found.old)} → {escape(found.new)}: {found.episodes:,} episodes in {found.groups:,} groups; without a reward "
        f"{found.old_unjudged:.1%} → {found.new_unjudged:.1%} of the trainable ones",
        highlight=False,
    )
    numbers = Table("", "changed", "up", "down", "mean change", "largest")
    for name, one in (("outcome", found.outcome), ("reward", found.reward), ("advantage", found.advantage)):
        numbers.add_row(
            name, f"{one.changed:,}", f"{one.up:,}", f"{one.down:,}", f"{one.mean:.4f}", f"{one.largest:.4f}"
        )
    console.print(numbers)
    for what, moves in (("episodes", found.statuses), ("groups", found.group_states)):
        for move in moves:
            console.print(f"{move.count:,} {what}: {move.old} → {move.new}", highlight=False)
    if not found.changed:
        console.print("no episode changes" if found.episodes else "no episode is in the selection")
        return
    table = Table("episode", "problem", "status", "outcome", "reward", "advantage", "group")
    for row in found.changed:
        table.add_row(
            row.episode_id,
            escape(row.problem_id),
            _both(row.old_status, row.new_status),
            _both(row.old_outcome, row.new_outcome),
            _both(row.old_reward, row.new_reward),
            _both(row.old_advantage, row.new_advantage),
            _both(row.old_group, row.new_group),
        )
    console.print(table)


def _both(old: object, new: object) -> str:
    shown = ["-" if one is None else f"{one:.3g}" if isinstance(one, float) else str(one) for one in (old, new)]
    return shown[0] if shown[0] == shown[1] else " → ".join(shown)


def draw(found: "Difference", path: Path) -> None:
    """A picture: each changed episode's reward and advantage, the old on the x axis and the new on the y axis."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    rewards = [
        (row.old_reward, row.new_reward) for row in found.changed if None not in (row.old_reward, row.new_reward)
    ]
    advantages = [(row.old_advantage, row.new_advantage) for row in found.changed]
    for axes, name, points in ((left, "reward", rewards), (right, "advantage", advantages)):
        axes.scatter([old for old, _ in points], [new for _, new in points], alpha=0.4, s=18)
        axes.axline((0, 0), slope=1, color="grey", linewidth=0.8)
        axes.set(title=f"{name} of {len(points)} changed episodes", xlabel=found.old, ylabel=found.new)
    figure.savefig(path, dpi=150)
