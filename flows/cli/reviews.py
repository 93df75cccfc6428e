"""`review queue`, `set` and `stats`: people look at episodes, and what they say outranks every rubric."""

import json
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

console = Console()

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


class Rule(StrEnum):
    """What brings an episode before a reviewer."""

    DISAGREEMENT = "disagreement"
    DETECTOR = "detector"
    HIGH_ADVANTAGE = "high_advantage"
    RANDOM = "random"


review_app = typer.Typer(
    no_args_is_help=True,
    help="""Human review: which episodes to look at, verdicts, and how far people and rubrics agree.

`lakeloop review queue`, then `lakeloop episodes show EPISODE`, then `lakeloop review set EPISODE solved`. A verdict outranks
every rubric from then on, in training and in evaluation; the newest one of an episode counts.""",
)


def add_to(app: typer.Typer) -> None:
    app.add_typer(review_app, name="review", rich_help_panel="Lake")


@review_app.command("queue")
def show_queue(
    rule: Annotated[Rule | None, typer.Option(help="Only this queue. Default: all in turn.")] = None,
    run: Annotated[str | None, typer.Option(help="Only this run.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only this kind of problem.")] = None,
    where: Annotated[str, typer.Option(help="Only these: SQL over the columns of the view `review_queue`.")] = "true",
    reviewer: Annotated[
        str | None, typer.Option(help="Leave out what this person has reviewed. Default: what anybody has.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many.")] = 20,
    as_json: Json = False,
) -> None:
    """The next episodes to look at, each with the rule that chose it and why.

    disagreement: two rubrics, gradings, judges or reviewers differ. detector: the reward-hack radar saw something.
    high_advantage: what training will make more of. random: the sample that says how often a rubric is wrong in general.
    """
    from lakehouse.reviews import queue

    conditions = [f"{name} = {_quoted(value)}" for name, value in (("run_id", run), ("problem_kind", kind)) if value]
    selection = " and ".join([*conditions, f"(\n{where}\n)"])
    found = queue(None, rule.value if rule else None, where=selection, reviewer=reviewer, limit=limit)
    if as_json:
        typer.echo(json.dumps([row.model_dump() for row in found], ensure_ascii=False))
        return
    if not found:
        console.print("nothing waits for a review in this selection")
        return
    table = Table("episode", "problem", "version", "queue", "why")
    for row in found:
        version = "-" if row.model_version is None else str(row.model_version)
        table.add_row(row.episode_id, escape(row.problem_id), version, row.queue, escape(row.why))
    console.print(table)


@review_app.command("set")
def set_verdict(
    episode_id: Annotated[str, typer.Argument(help="The episode.")],
    outcome: Annotated[
        str, typer.Argument(help="solved, failed, a number from 0 to 1, or unclear, which keeps it out of training.")
    ],
    comment: Annotated[str | None, typer.Option(help="Why, for people.")] = None,
    queue: Annotated[str, typer.Option(help="The queue that it came from, so that statistics can tell.")] = "asked",
    reviewer: Annotated[str | None, typer.Option(help="Whose verdict. Default: the user of this process.")] = None,
    as_json: Json = False,
) -> None:
    """Give a verdict. It outranks every rubric; the newest of an episode counts. It is written into the audit."""
    from lakehouse.reviews import review

    verdict = review(None, episode_id, _outcome(outcome), reviewer=reviewer, queue=queue, comment=comment)
    if as_json:
        typer.echo(verdict.model_dump_json())
        return
    told = "unclear, and out of training" if verdict.outcome is None else f"{verdict.outcome:g}"
    console.print(f"{escape(verdict.reviewer)} says of {escape(episode_id)}: {told}", highlight=False)


@review_app.command("stats")
def statistics(
    queue: Annotated[
        str | None, typer.Option(help="Only verdicts from this queue; random is the one that may be generalised from.")
    ] = None,
    as_json: Json = False,
) -> None:
    """How far reviewers agree with rubrics and with each other: raw agreement and Cohen's kappa.

    Kappa is what is left of the agreement beyond chance: 1 is perfect, 0 is chance; none where both always said one thing.
    """
    from lakehouse.reviews import agreements

    found = agreements(None, queue=queue)
    if as_json:
        typer.echo(json.dumps([row.model_dump() for row in found], ensure_ascii=False))
        return
    if not found:
        console.print("no episode has a verdict and another witness yet: `lakeloop review queue`")
        return
    table = Table("reviewer", "against", "queue", "episodes", "agreement", "kappa", "solved, reviewer", "solved, other")
    for row in found:
        kappa = "-" if row.kappa is None else f"{row.kappa:.2f}"
        shares = (f"{row.agreement:.0%}", kappa, f"{row.reviewer_solved:.0%}", f"{row.second_solved:.0%}")
        table.add_row(escape(row.reviewer), escape(row.second), row.queue, str(row.n), *shares)
    console.print(table)


def _outcome(text: str) -> float | None:
    words = {"solved": 1.0, "failed": 0.0, "unclear": None}
    if text in words:
        return words[text]
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is none of solved, failed, unclear or a number from 0 to 1") from None


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
