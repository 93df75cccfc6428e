"""The commands in one place. Imports nothing heavy, so that `--help` is quick; each command imports what it needs."""

import sys

import typer
from rich.console import Console

from flows.cli import lake, runs, stack

errors = Console(stderr=True)

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Agentic reinforcement learning as a data pipeline: collect, label, train, release, and query every token.",
    epilog="First steps: `lakeloop quickstart`, then `lakeloop query 'from success_by_version'`.",
)

stack.add_to(app)
runs.add_to(app)
lake.add_to(app)


def run() -> None:
    """Run a command. What a user can mend is one message and exit status 1; Ctrl-C is 130; anything else is a traceback."""
    try:
        app()
    except KeyboardInterrupt:
        errors.print("interrupted")
        sys.exit(130)
    except Exception as error:
        if not _expected(error):
            raise
        errors.print(f"[red]error:[/red] {error}", highlight=False)
        sys.exit(1)


def _expected(error: Exception) -> bool:
    """Whether the error is one of ours, whose message names the cause and the remedy."""
    return type(error).__module__.partition(".")[0] in ("flows", "tasks", "sandboxes", "lakehouse")
