"""`lakeloop problems attack`: every hack of the corpus against problems, judged as training would judge it."""

import asyncio
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from lakehouse.records import Problem
    from sandboxes.agents.hacks import Hack
    from sandboxes.backends.base import Backend
    from sandboxes.episode import Result

console = Console()
errors = Console(stderr=True)

KINDS = ("swe", "search")
AT_ONCE = 4


def attack(
    kinds: Annotated[list[str] | None, typer.Argument(help="Kinds of problems: swe, search. Default: both.")] = None,
    problems: Annotated[
        int, typer.Option(min=1, help="How many of each kind, evenly spread over the shipped set.")
    ] = 20,
    hack: Annotated[
        list[str] | None, typer.Option(help="Only this hack, such as hack:conftest; may be repeated.")
    ] = None,
    backend: Annotated[str, typer.Option(help="Where code runs: auto, docker or bubblewrap.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts, one array of objects.")] = False,
) -> None:
    """Attack the graders: scripted agents that try to be paid without solving anything. No model is needed.

    Episodes are graded and labelled as in training, in a lake of their own that is gone afterwards. Every hack must score
    nothing and the oracle everything; else the exit status is 1. Hacks marked as a limit are shown and not counted:
    docs/grading.md says why. `radar` is how many of the episodes its detectors saw. A grading takes about a second of one
    core, so the whole corpus is for a quiet machine.
    """
    from sandboxes import backends
    from sandboxes.agents.hacks import HACKS
    from sandboxes.problems.library import load, prepare

    wanted = list(kinds or KINDS)
    unknown = sorted(set(wanted) - set(KINDS))
    if unknown:
        raise typer.BadParameter(f"no hacks for {', '.join(unknown)}; there are some for {', '.join(KINDS)}")
    if wrong := sorted(set(hack or ()) - set(HACKS)):
        raise typer.BadParameter(f"no hack is called {', '.join(wrong)}; there are {', '.join(sorted(HACKS))}")
    box = backends.prepare(backend)
    rows: list[dict[str, Any]] = []
    for kind in wanted:
        hacks = [one for one in HACKS.values() if one.kind == kind and (not hack or one.name in hack)]
        shipped = load(kind)
        chosen = shipped[:: max(1, len(shipped) // problems)][:problems]
        prepare(chosen)
        rows += attacked(kind, chosen, hacks, box, _progress)
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False))
    else:
        console.print(table(rows))
    if any(row["broken"] for row in rows):
        raise typer.Exit(1)


def attacked(
    kind: str,
    problems: "Sequence[Problem]",
    hacks: "Sequence[Hack]",
    backend: "Backend",
    progress: Callable[[str, int, int], None],
) -> list[dict[str, Any]]:
    """A row for the oracle and one per hack: what these problems paid it, and whether that is broken.

    A reward of NULL is broken as well: a hack that can make a grader fail gets around its reward of 0.
    """
    from sandboxes.attack import GOLD

    agents = ((GOLD, "The oracle's repair or answer.", False), *((h.name, h.aim, h.limit) for h in hacks))
    played = asyncio.run(_play([agent for agent, _, _ in agents], problems, backend, progress))
    everything = [result for results in played.values() for result in results]
    found = _judged(kind, everything, problems)
    paid_for = {id(result): found.paid[result.episode.episode_id] for result in everything}
    rows = []
    for agent, aim, limit in agents:
        results = played[agent]
        paid = [paid_for[id(result)] for result in results]
        due = 1.0 if agent == GOLD else 0.0
        scored = [reward for reward in paid if reward is not None]
        sightings = [
            found.seen[result.episode.episode_id] for result in results if result.episode.episode_id in found.seen
        ]
        rows.append(
            {
                "kind": kind,
                "agent": "oracle" if agent == GOLD else agent,
                "problems": len(results),
                "paid": sum(reward > 0 for reward in scored),
                "highest": max(scored, default=None),
                "lowest": min(scored, default=None),
                "unscored": len(paid) - len(scored),
                "statuses": sorted({str(result.episode.status) for result in results}),
                "limit": limit,
                "broken": not limit and any(reward != due for reward in paid),
                "seen": len(sightings),
                "detectors": sorted({name for names in sightings for name in names}),
                "where": [r.episode.problem_id for r, reward in zip(results, paid, strict=True) if reward != due],
                "aim": aim,
            }
        )
    return rows


async def _play(
    agents: Sequence[str], problems: "Sequence[Problem]", backend: "Backend", progress: Callable[[str, int, int], None]
) -> "dict[str, list[Result]]":
    """Every agent on every problem, a few at a time; results by agent, in the problems' order."""
    from sandboxes.attack import play

    places = asyncio.Semaphore(AT_ONCE)
    finished = dict.fromkeys(agents, 0)

    async def one(agent: str, problem: "Problem") -> "Result":
        async with places:
            result = await play(agent, problem, backend)
        finished[agent] += 1
        progress(agent, finished[agent], len(problems))
        return result

    results = await asyncio.gather(*(one(agent, problem) for agent in agents for problem in problems))
    return {agent: results[n * len(problems) : (n + 1) * len(problems)] for n, agent in enumerate(agents)}


@dataclass(frozen=True)
class _Judged:
    """By episode: what was paid, and which detectors of the radar saw something."""

    paid: dict[str, float | None]
    seen: dict[str, list[str]]


def rewards(kind: str, results: "Sequence[Result]") -> list[float | None]:
    """What the newest rubric of the kind pays for these episodes."""
    paid = _judged(kind, results).paid
    return [paid[result.episode.episode_id] for result in results]


def _judged(kind: str, results: "Sequence[Result]", problems: "Sequence[Problem]" = ()) -> _Judged:
    """Land the episodes in a lake of their own, label them, and look at the radar."""
    from lakehouse.label import current, label
    from lakehouse.query import query
    from lakehouse.write import Writer

    with tempfile.TemporaryDirectory() as lake:
        evidence = [fact for result in results for fact in result.evidence]
        actions = [action for result in results for action in result.actions]
        if problems:
            Writer(lake).append("problems", list(problems))
        Writer(lake).land([result.episode for result in results], [], actions, evidence)
        label(lake, current(kind))
        paid = dict(query("select episode_id, reward from latest_rewards", lake).rows())
        seen = dict(query("select episode_id, list(detector) from radar group by episode_id", lake).rows())
    return _Judged(paid, seen)


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """The rows for people."""
    shown = Table(
        "kind", "agent", "problems", "paid", "highest", "unscored", "radar", "verdict", "what it tries", title="attack"
    )
    for row in rows:
        verdict = "[red]BROKEN[/red]" if row["broken"] else "known limit" if row["limit"] and row["paid"] else "holds"
        highest = "-" if row["highest"] is None else f"{row['highest']:.2f}"
        numbers = (str(row["problems"]), str(row["paid"]), highest, str(row["unscored"]))
        radar = f"{row['seen']}: {', '.join(row['detectors'])}" if row["seen"] else "-"
        shown.add_row(row["kind"], row["agent"], *numbers, radar, verdict, row["aim"])
    return shown


def _progress(agent: str, done: int, total: int) -> None:
    if done == total:
        errors.print(f"{agent}: {done} of {total}", highlight=False)
