"""`gate` and `offpolicy`: whether a version may be promoted, and what can be told of it before it plays."""

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from lakehouse.evaluation.decide import Decision, Verdict
    from lakehouse.evaluation.offpolicy import Estimated

console = Console()

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def add_to(app: typer.Typer) -> None:
    app.command(rich_help_panel="Loop")(gate)
    app.command(rich_help_panel="Loop")(offpolicy)


def gate(
    candidate: Annotated[str, typer.Argument(help="The version that may be promoted, such as 7 or tiny@7.")],
    champion: Annotated[
        str | None, typer.Option(help="The version to compare with. Default: the promoted one.", show_default=False)
    ] = None,
    policy: Annotated[
        str, typer.Option(help="A shipped policy (default, strict) or a TOML file: docs/gate.md.")
    ] = "default",
    exam: Annotated[
        str | None, typer.Option(help='What is played, such as {"problems": {"search": 40}}. Default: the policy\'s.')
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare a version with the champion on the same held-out problems and seeds, and decide by a policy.

    Evaluations of the same draw that are in the lake are used; the rest is played, with the engine on that version
    meanwhile. Differences are paired, with bootstrap intervals over problems; what infrastructure lost is in no pair.
    The decision is a row of the table gates, and in MLflow and Prefect. No alias moves: `lakeloop release --policy FILE`
    decides and promotes. Exit status 1 where the version is refused.
    """
    from lakehouse.evaluation.policy import read

    read(policy)  # what is wrong with it is said before anything is started
    given: dict[str, Any] = {"candidate": _number(candidate), "policy": _absolute(policy)}
    if champion is not None:
        given["champion"] = _number(champion)
    if exam is not None:
        given["exam"] = _exam(exam)
    decision = _call("gate", given, as_json=as_json)
    if as_json:
        typer.echo(decision.model_dump_json())
    else:
        _show(decision)
    if not decision.passed:
        raise typer.Exit(1)


def offpolicy(
    version: Annotated[str, typer.Argument(help="The version that is asked about, such as 7 or tiny@7.")],
    run_id: Annotated[list[str], typer.Option(help="A run whose episodes are weighed; may be repeated.")],
    of: Annotated[Literal["success", "reward"], typer.Option(help="What is estimated.")] = "success",
    min_effective_samples: Annotated[
        float, typer.Option(min=1.0001, help="Where the episodes are worth fewer of the version's own: no estimate.")
    ] = 32,
    confidence: Annotated[float, typer.Option(min=0.5001, max=0.9999, help="Of the intervals.")] = 0.95,
    as_json: Json = False,
) -> None:
    """Estimate what a version would earn from the log-probs of episodes that other versions played: no rollout is spent.

    The version scores the stored tokens; each episode is weighed by how much likelier the version makes it than who
    sampled it. The effective sample size says what that is worth; below the minimum there is no estimate. docs/gate.md
    has the estimators and the papers.
    """
    asked = {"version": _number(version), "run_ids": run_id, "of": of, "confidence": confidence}
    found = _call("offpolicy", asked | {"min_effective_samples": min_effective_samples}, as_json=as_json)
    if as_json:
        typer.echo(found.model_dump_json())
    else:
        _show_estimate(found)


def _call(flow: str, given: dict[str, Any], *, as_json: bool) -> Any:
    from flows.cli.runs import call, point_at_stack

    point_at_stack()
    return call(flow, given, Console(stderr=True) if as_json else console)


def _number(version: str) -> int:
    """7 of "7" or "tiny@7", where tiny is the model of this home."""
    from tasks.stack import Settings

    name, _, number = version.rpartition("@")
    own = Settings().model_name
    if not number.isdecimal() or int(number) < 1 or name not in ("", own):
        raise typer.BadParameter(f"{version!r} is no version: write a number, or {own}@NUMBER")
    return int(number)


def _exam(text: str) -> dict[str, Any]:
    from pydantic import ValidationError

    from lakehouse.evaluation.exam import Exam

    try:
        return Exam.model_validate_json(text).model_dump()
    except ValidationError as error:
        said = "; ".join(f"{'.'.join(map(str, one['loc'])) or '--exam'}: {one['msg']}" for one in error.errors())
        raise typer.BadParameter(f"{said}. There are {', '.join(Exam.model_fields)}") from None


def _absolute(policy: str) -> str:
    """A file's path as a flow run elsewhere finds it; a name stays as it is."""
    from pathlib import Path

    return str(Path(policy).expanduser().resolve()) if "/" in policy or policy.endswith(".toml") else policy


def _show(decision: "Decision") -> None:
    against = f"version {decision.champion}" if decision.champion is not None else "nothing"
    said = "[green]passes[/green]" if decision.passed else "[red]is refused[/red]"
    console.print(f"{escape(decision.name)} version {decision.candidate} against {against}: {said}", highlight=False)
    measured = decision.measured
    if "success_difference" in measured.values["total"]:
        table = Table("problems", "pairs", "champion", "candidate", "difference", f"{decision.confidence:.0%} interval")
        for scope, values in measured.values.items():
            theirs = measured.champion.get(scope, {})
            ends = [values.get(f"success_difference{end}") for end in ("", "_low", "_high")]
            shown = [values.get("pairs"), theirs.get("success"), values.get("success"), ends[0]]
            between = "" if ends[1] is None else f"{ends[1]:+.3f} to {ends[2]:+.3f}"
            table.add_row(escape(scope), *("" if one is None else f"{one:.4g}" for one in shown), between)
        console.print(table)
    rules = Table("rule", "of", "measured", "")
    for one in decision.verdicts:
        rules.add_row(escape(one.rule), escape(one.scope), "" if one.value is None else f"{one.value:.4g}", _word(one))
    console.print(rules)
    for reason in decision.reasons:
        console.print(f"[red]refused:[/red] {escape(reason)}", highlight=False)
    console.print(f"decision {decision.gate_id}", highlight=False)


def _word(one: "Verdict") -> str:
    if one.keeps is None:
        return escape(one.note)
    return "[green]holds[/green]" if one.keeps else "[red]broken[/red]"


def _show_estimate(found: "Estimated") -> None:
    sampled = ", ".join(f"version {key} ({count})" for key, count in found.sampled_by.items())
    console.print(
        f"{escape(found.name)} version {found.version}, from {found.episodes} episodes of {sampled}: worth "
        f"{found.effective_samples:.1f} of its own. Observed {found.of}: {found.observed:.3f}",
        highlight=False,
    )
    table = Table(
        "estimator", found.of, f"{found.confidence:.0%} interval", "difference", f"{found.confidence:.0%} interval"
    )
    for method, one in found.estimates.items():
        table.add_row(
            method,
            f"{one.value:.3f}",
            f"{one.low:.3f} to {one.high:.3f}",
            f"{one.difference:+.3f}",
            f"{one.difference_low:+.3f} to {one.difference_high:+.3f}",
        )
    console.print(table)
    console.print(
        f"mean weight {found.mean_weight:.3f}, greatest share {found.largest_share:.1%}, "
        f"{found.divergence:.2g} nats per token apart over {found.tokens:,} tokens",
        highlight=False,
    )
    if found.left_out:
        console.print(f"left out: {json.dumps(found.left_out)}", highlight=False)
