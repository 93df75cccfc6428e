"""`lakeloop quickstart`: the whole loop on this machine, with a table, a curve and the numbers at the end."""

import asyncio
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from flows.quickstart import Outcome

console = Console()


def quickstart(
    model: Annotated[
        str | None, typer.Option(help="tiny, smollm2, or a Hugging Face folder. Default: LAKELOOP_MODEL, else tiny.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of GRPO.")] = 3,
    seed: Annotated[int, typer.Option(help="Draws the problems.")] = 0,
) -> None:
    """Bring the stack up, warm-start a model on demonstrations, improve it with GRPO, and show what came of it."""
    if model:
        os.environ["LAKELOOP_MODEL"] = model
    from flows.cli.display import progress_display
    from flows.cli.presets import preset
    from flows.cli.runs import point_at_stack
    from flows.cli.stack import bring_up
    from tasks.stack import Settings

    settings = Settings()
    chosen = preset(settings.model)
    console.print(chosen.expectation)
    started = time.monotonic()
    with ThreadPoolExecutor(1) as side:  # fetching sources is waiting, and so is most of `up`
        sources = side.submit(fetch_sources)
        seconds = {"install": float(os.environ.get("LAKELOOP_INSTALL_SECONDS", 0)), "up": round(bring_up(), 2)}
        sources.result()
    point_at_stack()
    from flows.quickstart import quickstart as flow
    from tasks.serving import models

    folder = models.resolve(settings.model, settings.home)
    with progress_display(console):
        outcome = asyncio.run(flow(folder=folder, rounds=rounds, seed=seed, **chosen.parameters))
    seconds |= {name: outcome.seconds.get(name, 0.0) for name in STAGES}
    seconds["total"] = round(time.monotonic() - started + seconds["install"], 2)
    numbers = report(outcome, seconds)
    (settings.home.root / "quickstart.json").write_text(json.dumps(numbers, indent=2) + "\n")
    curve = draw_curve(outcome, settings.home.root / "quickstart.png")
    _print(outcome, numbers, curve)


def fetch_sources() -> None:
    """Fetch the sources of all shipped problems."""
    from sandboxes.problems.library import load, prepare

    prepare(load("swe"))


STAGES = ("warm_start", "collect", "train", "release", "evaluate")


def report(outcome: "Outcome", seconds: dict[str, float]) -> dict[str, Any]:
    """The numbers for scripts: episodes, calls and tokens are those of this quickstart's runs."""
    from lakehouse import connect

    with connect() as connection:
        counted = connection.execute(
            """
            select count(*), sum(n_calls)::bigint, sum(n_completion_tokens)::bigint
            from episodes where list_contains($1, run_id)
            """,
            [outcome.run_ids],
        ).fetchone()
    assert counted is not None
    return {
        "episodes": counted[0],
        "calls": counted[1],
        "tokens": counted[2],
        "rounds": len(outcome.rounds),
        "rounds_passed_over": [turn.number for turn in outcome.rounds if turn.version is None],
        "eval": [
            {
                "stage": e.stage,
                "problem_kind": r.problem_kind,
                "success": None if r.rate is None else round(r.rate, 4),
                "n": r.n,
            }
            for e in outcome.evaluations
            for r in e.results
        ],
        "model_versions": outcome.versions,
        "seconds": seconds,
    }


def draw_curve(outcome: "Outcome", path: Path) -> Path:
    """Held-out success by stage, a line per problem kind, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    stages = [e.stage for e in outcome.evaluations]
    kinds = sorted({r.problem_kind for e in outcome.evaluations for r in e.results})
    for kind in kinds:
        found = [next((r for r in e.results if r.problem_kind == kind), None) for e in outcome.evaluations]
        rates = [r.rate if r and r.rate is not None else float("nan") for r in found]
        errors = [(r.rate * (1 - r.rate) / r.n) ** 0.5 if r and r.rate is not None else 0.0 for r in found]
        axes.errorbar(stages, rates, yerr=errors, marker="o", capsize=3, label=kind)
    axes.set(ylim=(0, 1), ylabel="held-out success", title="Success by stage (bars: one standard error)")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path


def _print(outcome: "Outcome", numbers: dict[str, Any], curve: Path) -> None:
    from flows.improve import counted
    from tasks.stack import Settings

    settings = Settings()
    kinds = sorted({row["problem_kind"] for row in numbers["eval"]})
    table = Table("stage", "version", *(f"{kind} success" for kind in kinds), title="Held-out success")
    for evaluation, version in zip(outcome.evaluations, outcome.versions, strict=True):
        rates = {
            r.problem_kind: f"{r.rate:.0%} of {r.n}" if r.rate is not None else "not scored" for r in evaluation.results
        }
        table.add_row(evaluation.stage, str(version), *(rates.get(kind, "-") for kind in kinds))
    console.print(table)
    for turn in outcome.rounds:
        if turn.version is None:
            why = counted(turn.left_out)
            console.print(f"Round {turn.number} trained nothing, no group could be trained on: {why}", highlight=False)
    console.print(
        f"{numbers['episodes']} episodes, {numbers['calls']} calls, {numbers['tokens']} sampled tokens "
        f"in {numbers['seconds']['total']:.0f} s; curve: {curve}"
    )
    console.print(f"Prefect  {settings.prefect_url.removesuffix('/api')}")
    console.print(f"MLflow   {settings.mlflow_url}")
    console.print(f"gateway  {settings.gateway_url}  (OpenAI base URL: {settings.gateway_url}/v1)")
    console.print("Next:")
    console.print("  lakeloop query 'from success_by_version'")
    console.print("  lakeloop episodes list --limit 5, then lakeloop episodes show ID")
    console.print("  lakeloop improve --rounds 1")
