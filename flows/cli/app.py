"""The commands in one place. Imports nothing heavy, so that `--help` is quick; each command imports what it needs."""

import sys

import typer
from rich.console import Console
from rich.markup import escape

from flows.cli import (
    bench,
    export,
    gate,
    gateway,
    governance,
    images,
    keys,
    lake,
    learning,
    lineage,
    problems,
    reviews,
    rubrics,
    runs,
    sources,
    stack,
)

errors = Console(stderr=True)

INTERRUPTED = 130  # 128 + SIGINT, as shells count

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Agentic reinforcement learning as a data pipeline: collect, label, train, release, and query every token.",
    epilog="First steps: `lakeloop quickstart`, then `lakeloop query 'from success_by_version'`.",
)

stack.add_to(app)
runs.add_to(app)
gate.add_to(app)
lake.add_to(app)
learning.add_to(app)
lineage.add_to(app)
rubrics.add_to(app)
reviews.add_to(app)
problems.add_to(app)
export.add_to(app)
sources.add_to(app)
governance.add_to(app)
bench.add_to(app)
images.add_to(app)
gateway.add_to(app)
keys.add_to(app)


def run() -> None:
    """Run a command. What a user can mend is one message and exit status 1; Ctrl-C is 130; anything else is a traceback."""
    try:
        app()
    except SystemExit as end:
        if end.code == INTERRUPTED:  # typer makes this of Ctrl-C, and says nothing
            errors.print("interrupted")
        raise
    except Exception as error:  # the outermost frame decides how an error is told
        told = _told(error)
        if told is None:
            raise
        errors.print(f"[red]error:[/red] {escape(told)}", highlight=False)
        sys.exit(1)


def _told(error: Exception) -> str | None:
    """The message of an error that the user can mend: one of ours, or a setting that is wrong. None for a defect."""
    from pydantic import ValidationError

    if isinstance(error, ValidationError) and error.title == "Settings":
        wrong = [f"LAKELOOP_{'_'.join(map(str, one['loc'])).upper()}: {one['msg']}" for one in error.errors()]
        return "; ".join(wrong)
    ours = type(error).__module__.partition(".")[0] in ("flows", "tasks", "sandboxes", "lakehouse")
    return str(error) if ours else None
