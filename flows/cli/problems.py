"""`problems`: what models are trained and evaluated on: shipped, built, imported, one's own."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from flows.cli.attack import attack
from flows.cli.lake import Json, query

if TYPE_CHECKING:
    from lakehouse.records import Problem
    from sandboxes.problems.foreign import Terms
    from sandboxes.problems.swe.importing.folder import Finding

console = Console()
errors = Console(stderr=True)

AT_ONCE = 4  # problems in the gates: what waits for a box leaves a core to another
PROGRESS_S = 10.0
SWE = ("folder", "r2e", "swebench", "swesmith")  # forms whose problems are validated by running their tests

problems_app = typer.Typer(no_args_is_help=True, help="The problems models are trained and evaluated on.")
build_app = typer.Typer(no_args_is_help=True, help="Make problems; by kind.")
problems_app.add_typer(build_app, name="build")
problems_app.command()(attack)


def add_to(app: typer.Typer) -> None:
    app.add_typer(problems_app, name="problems", rich_help_panel="Lake")


@problems_app.command("load")
def load_problems(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Kinds or sets, such as search/debian. Default: all kinds, no further sets."),
    ] = None,
) -> None:
    """Put the shipped problems into the lake. One that changed is added as a new edition; episodes keep the one they saw."""
    from lakehouse.write import Writer
    from sandboxes.problems.library import DEFAULTS

    for name in names or DEFAULTS:
        added = Writer().put_problems(_shipped(name))
        console.print(f"{name}: {added.rows} new problems or editions")


def _shipped(name: str) -> "list[Problem]":
    """The shipped problems of a kind or set. A usage error where a set of this name is not shipped."""
    from sandboxes.problems.library import LOADERS, load

    found = load(name)
    if not found and "/" in name:
        raise typer.BadParameter(f"no set {name!r} is shipped; there are {', '.join(n for n in LOADERS if '/' in n)}")
    return found


@problems_app.command("import")
def import_problems(
    form: Annotated[str, typer.Argument(help="The form they are in, such as gsm8k; docs/problems.md has them all.")],
    path: Annotated[Path, typer.Argument(help="The file (.jsonl, .parquet) or folder.")],
    name: Annotated[str, typer.Option(help="Name of the collection, for the problems' ids.")],
    licence: Annotated[
        str | None, typer.Option(help="The collection's licence, such as MIT. A folder says its own.")
    ] = None,
    split: Annotated[str, typer.Option(help="train or eval: imported problems are not divided.")] = "train",
    uses: Annotated[
        str, typer.Option(help="Without training among them, nothing is trained on.")
    ] = "training,evaluation",
    image: Annotated[
        str | None,
        typer.Option(
            help="Image of the boxes, for a form that needs one of its own. With columns in it, such as "
            "sweb.eval.x86_64.{instance_id}, each row has one, and without --repos its repository is that image's /testbed."
        ),
    ] = None,
    corpus: Annotated[
        str | None, typer.Option(help="What search-r1 rows search: a corpus by name, or a file of passages.")
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave bad rows out instead of refusing the file.")
    ] = False,
    sample: Annotated[
        int | None,
        typer.Option(min=0, help="Run the gates on so many only; the rest land as not gated, and are never drawn."),
    ] = None,
    repos: Annotated[
        Path | None, typer.Option(help="Folder of local clones, owner__name, for rows that name a commit.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse rows with columns the form does not have, instead of keeping them.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a report for scripts: swe forms only.")] = False,
    backend: Annotated[str, typer.Option(help="Where code runs: auto, docker or bubblewrap.")] = "auto",
) -> None:
    """Take problems of others into the lake. Each goes through both gates: the oracle must solve it, doing nothing must not.

    One that fails is in the lake as such, and never drawn nor trained on. With --sample, a failure among the sample
    refuses them all, and what was not in it is in the lake as not gated: never drawn nor trained on either.
    """
    from lakehouse.ingesting import problems
    from lakehouse.write import Writer
    from sandboxes.problems.imports import read, terms

    if licence is None and form != "folder":
        raise typer.BadParameter("say under which licence the collection is, such as MIT", param_hint="--licence")
    allowed = [use.strip() for use in uses.split(",") if use.strip()]
    own = {"image": image, "corpus": corpus, "skip_bad": skip_bad}
    taken = terms(name=name, split=split, licence=licence or "as the folder says", allowed_uses=allowed, **own)
    if form in SWE:
        _import_swe(form, path, taken, repos, strict=strict, backend=backend, as_json=as_json)
        return
    found = read(form, path, taken)
    ungated = 0
    if form != "external":  # nothing here plays those: the application ran the gates, and its rows say how they ended
        gated = _gated(found if sample is None else _spread(found, sample), backend)
        if sample is not None and not _all_passed(gated):
            raise typer.Exit(1)
        # Readers vouch for nothing: what was not played, now or before, lands without either gate.
        tried = {problem.problem_id: problem for problem in gated}
        before = problems(None, [one.problem_id for one in found if one.problem_id not in tried])
        found = [tried.get(one.problem_id) or _as_before(one, before.get(one.problem_id)) for one in found]
        ungated = sum(bool(one.ungated) for one in found)
    added = Writer().put_problems(found)
    console.print(f"{name}: {added.rows} new problems or editions")
    if ungated:
        console.print(
            f"{ungated} of {len(found)} are not gated: they are never drawn nor trained on until they are imported "
            "without --sample",
            highlight=False, soft_wrap=True,
        )  # fmt: skip


def _as_before(problem: "Problem", newest: "Problem | None") -> "Problem":
    """The problem with the gates that the lake knows of it, where nothing else of it has changed since."""
    if newest is None:
        return problem
    gates = ("oracle_passed", "null_failed", "ungated")
    same = problem.model_copy(update={name: getattr(newest, name) for name in gates})
    return same if same.content == newest.content else problem


def _import_swe(
    form: str, path: Path, terms: "Terms", repos: Path | None, *, strict: bool, backend: str, as_json: bool
) -> None:
    """Good rows land as they come, so that an import that is stopped has not worked for nothing."""
    import asyncio

    from lakehouse.records import Problem
    from lakehouse.write import Writer
    from sandboxes import backends
    from sandboxes.problems.swe.importing.imported import Order, Refused, imported, unknown_columns

    order = Order(form=form, path=path, terms=terms, repos=repos, strict=strict)
    extra = {} if form == "folder" else dict(unknown_columns(order))
    if extra and not as_json:
        console.print(f"columns that {form} does not have, kept with each problem: {', '.join(sorted(extra))}")
    box = backends.prepare(backend)
    refused: list[Refused] = []
    taken: list[str] = []

    async def work() -> int:
        rows = 0
        async for one in imported(order, box):
            if isinstance(one, Problem):
                taken.append(one.problem_id)
                rows += Writer().put_problems([one]).rows
                said = f"{one.problem_id}: solved by its solution, and by nothing less"
            else:
                refused.append(one)
                said = f"{one.line} {one.instance or ''}: refused: {one.reason}"
            if not as_json:
                console.print(said, highlight=False, markup=False, soft_wrap=True)
        return rows

    new = asyncio.run(work())
    if as_json:
        report = {
            "taken": taken,
            "new": new,
            "refused": [one.model_dump() for one in refused],
            "unknown_columns": extra,
        }
        typer.echo(json.dumps(report))
    else:
        console.print(f"{terms.name}: {len(taken)} taken, {len(refused)} refused; {new} new problems or editions")
    if refused and not terms.skip_bad:
        raise typer.Exit(1)


@problems_app.command("lint")
def lint_problems(
    folder: Annotated[Path, typer.Argument(help="A problem folder, or a folder of such.")],
    run: Annotated[
        bool, typer.Option("--run", help="Run the tests as well: three times with the solution, twice without.")
    ] = False,
    as_json: Json = False,
    backend: Annotated[str, typer.Option(help="Where code runs: auto, docker or bubblewrap.")] = "auto",
) -> None:
    """Say what is wrong with problem folders of your own, and how to mend it; nothing is changed. Exit status 1 if anything is.

    A folder has `problem.toml`, `statement.md`, `repository/`, `tests/` and `solution.patch`; docs/problems.md says more.
    """
    from sandboxes.problems.swe.importing.folder import folders, lint

    looked = folders(folder)
    found = [finding for one in looked for finding in lint(one)]
    if run:
        clean = [one for one in looked if one.name not in {finding.folder for finding in found}]
        found += _ran(clean, backend)
    if as_json:
        typer.echo(json.dumps([finding.model_dump() for finding in found]))
    else:
        for finding in found:
            said = f"{finding.folder}/{finding.file}: {finding.wrong}\n    {finding.remedy}"
            console.print(said, highlight=False, markup=False, soft_wrap=True)
        console.print(f"{len(looked)} folders, {len(found)} findings")
    if found:
        raise typer.Exit(1)


def _ran(folders: "Sequence[Path]", backend: str) -> "list[Finding]":
    """What running the tests of these folders shows."""
    import asyncio

    from sandboxes import backends
    from sandboxes.problems.swe.importing.folder import Finding, ran

    box = backends.prepare(backend)
    return [finding for one in folders for finding in asyncio.run(ran(one, box)) if isinstance(finding, Finding)]


@build_app.command("swe")
def build_swe(
    package: Annotated[
        list[str] | None, typer.Option(help="Package to make bugs in; may be repeated. Default: all that are known.")
    ] = None,
    singles: Annotated[int | None, typer.Option(min=0, help="Problems with one bug, per package.")] = None,
    combined: Annotated[int | None, typer.Option(min=0, help="Problems with two or three bugs, per package.")] = None,
    versions: Annotated[bool, typer.Option(help="Bugs between two releases of a package as well.")] = True,
    seed: Annotated[int, typer.Option(help="Another seed draws other bugs.")] = 0,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin with nothing, instead of adding to the shipped ones.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the problems and the journal. Default: below the home folder.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Packages built at a time; the result is the same. Default: one per core.")
    ] = None,
    load: Annotated[bool, typer.Option(help="Put what was built into the lake.")] = True,
    backend: Annotated[str, typer.Option(help="Where code runs: auto, docker or bubblewrap.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Put bugs into real packages, keep those that tests notice, and tell them as problems. The deployment `build`.

    Each is validated in boxes: the repaired source three times, the broken one twice, then both gates. A build that was
    stopped goes on where it was. Numbers count what is there already.
    """
    from flows.cli import runs

    given: dict[str, Any] = {
        "packages": package,
        "singles": singles,
        "combined": combined,
        "versions": versions,
        "seed": seed,
        "workers": workers,
    }
    given |= {"fresh": fresh, "folder": None if out is None else str(out.resolve()), "load": load, "backend": backend}
    # Progress goes beside the report.
    built = runs.call(
        "build", {name: value for name, value in given.items() if value is not None}, Console(stderr=True)
    )
    if as_json:
        typer.echo(built.model_dump_json())
        return
    report = built.report
    for title, rates in (("package", report.by_package), ("kind of bug", report.by_kind)):
        table = Table(title, "tried", "kept", "share")
        for name, rate in sorted(rates.items()):
            table.add_row(name, str(rate.tried), str(rate.kept), f"{rate.share:.0%}")
        console.print(table)
    for reason, count in sorted(report.rejected.items(), key=lambda one: -one[1]):
        console.print(f"rejected {count:>4}  {reason}", highlight=False, markup=False)
    console.print(
        f"{report.kept} of {report.tried} candidates kept, {report.per_hour:.0f} an hour, told as {report.told} problems; "
        f"{built.new} new in the lake; {built.folder}",
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip


@problems_app.command("check")
def check_problems(
    name: Annotated[str, typer.Argument(help="Kind or set of problems: python, search, search/debian, swe.")],
    sample: Annotated[int, typer.Option(min=1, help="How many, evenly spread over the shipped set.")] = 20,
    backend: Annotated[str, typer.Option(help="Where code runs: auto, docker or bubblewrap.")] = "auto",
) -> None:
    """Put shipped problems through both gates again: the oracle must solve them, doing nothing must not. No model needed."""
    if not _all_passed(_gated(_spread(_shipped(name), sample), backend)):
        raise typer.Exit(1)


@problems_app.command("closed-book")
def closed_book(
    name: Annotated[
        str, typer.Argument(help="Kind or set of problems: search, search/debian, or one that was imported.")
    ],
    sample: Annotated[int | None, typer.Option(min=1, help="How many. Default: all that a run could draw.")] = None,
    split: Annotated[str, typer.Option(help="train or eval.")] = "train",
    concurrency: Annotated[int, typer.Option(min=1, help="Questions at a time.")] = 24,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Ask the served model each question without tools. What it knows by heart is drawn no more: searching is not learnt there.

    The questions are episodes of the agent closed-book, through the gateway. `from closed_book` shows who knew what.
    """
    from flows.cli import runs
    from lakehouse.planning import available
    from lakehouse.query import query as rows
    from lakehouse.write import Writer
    from sandboxes.problems.library import load

    if split not in ("train", "eval"):
        raise typer.BadParameter("train or eval", param_hint="--split")
    Writer().put_problems(load(name))
    there = available(None, name, split="eval" if split == "eval" else "train")
    asked = min(sample or there, there)
    if not asked:
        raise typer.BadParameter(
            f"no {name} problem of split {split} is left to ask: `lakeloop problems list` shows what there is"
        )
    given = {"problems": {name: asked}, "split": split, "samples": 1, "agent": "closed-book", "purpose": "closed-book"}
    given |= {"temperature": 0.0, "max_tokens": 48, "max_turns": 1, "concurrency": concurrency}
    run = runs.call("collect", given, Console(stderr=True))
    known = rows(f"""
        select count_if((value ->> '$.match')::boolean) from evidence
        join episodes using (episode_id) where name = 'answer' and run_id = '{run.run_id}'
    """).item()  # noqa: S608 - an id of ours
    if as_json:
        typer.echo(json.dumps({"run_id": run.run_id, "asked": asked, "answered": run.landed, "known": int(known)}))
        return
    console.print(
        f"{name}: {known} of {asked} known without tools; they are drawn no more (run {run.run_id})", highlight=False
    )


def _spread(problems: "Sequence[Problem]", sample: int) -> "Sequence[Problem]":
    """So many of them, evenly spread."""
    return problems[:: max(1, len(problems) // max(1, sample))][:sample]


def _all_passed(problems: "Sequence[Problem]") -> bool:
    return all(problem.passed for problem in problems)


def _gated(problems: "Sequence[Problem]", backend: str) -> "list[Problem]":
    """The problems with what the gates say of each now; the failures are shown, and the number of those that pass."""
    import asyncio

    from sandboxes import backends
    from sandboxes.problems.gates import gates
    from sandboxes.problems.kinds import kind_of

    box = backends.prepare(backend)
    shown = time.monotonic()
    done = 0

    async def one(problem: "Problem", places: asyncio.Semaphore) -> "Problem":
        nonlocal shown, done
        async with places:
            said = await gates(kind_of(problem.kind), problem, box)
        done += 1
        if not said.passed:
            console.print(f"{problem.problem_id}: {said}", highlight=False)
        if time.monotonic() - shown >= PROGRESS_S:
            shown = time.monotonic()
            errors.print(f"{done} of {len(problems)} went through the gates", highlight=False)
        return problem.model_copy(
            update={"oracle_passed": said.oracle_passed, "null_failed": said.null_failed, "ungated": None}
        )

    async def everything() -> "list[Problem]":
        places = asyncio.Semaphore(AT_ONCE)
        return await asyncio.gather(*(one(problem, places) for problem in problems))

    found = asyncio.run(everything())
    passed = sum(problem.passed for problem in found)
    console.print(f"{passed} of {len(found)} pass both gates")
    return found


@problems_app.command("list")
def list_problems(as_json: Json = False) -> None:
    """Problems by kind, source and split: how many passed both gates, failed one, or have not been through them yet."""
    query(
        """
        select kind, source, split, count(*) as problems, count_if(oracle_passed and null_failed) as gated,
            count_if(not (oracle_passed and null_failed) and ungated is not true) as failed, count_if(ungated is true) as not_gated,
            round(avg(difficulty), 2) as difficulty
        from problems group by all order by all
        """,
        as_json=as_json,
        rows=100,
    )
