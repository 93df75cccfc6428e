"""`lakeloop bench`: the benchmarks of the repository."""

import json
import keyword
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]

console = Console()


class BenchmarkError(Exception):
    """A benchmark that is not there, or that did not end well."""


def add_to(app: typer.Typer) -> None:
    app.command(rich_help_panel="Stack")(bench)


def bench(
    name: Annotated[str, typer.Argument(help="Which one. Without a name they are listed.", show_default=False)] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for scripts.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: that it works, not how fast it is.")] = False,
) -> None:
    """Measure a part of Lakeloop against a peer or a limit of this machine, in one run.

    Runs take turns, so that a slow minute hits both sides alike; results are ratios. Progress goes to stderr.
    """
    known = benchmarks()
    if name not in known:
        if name:
            raise BenchmarkError(f"no benchmark {name!r}; there are: {', '.join(known) or 'none outside a checkout'}")
        for one, purpose in known.items():
            console.print(f"{one:<12} {purpose}", highlight=False)
        return
    command = [sys.executable, "-m", f"benchmarks.{module(name)}", *(["--quick"] if quick else [])]
    ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode != 0:
        raise BenchmarkError(f"benchmark {name} ended with exit status {ended.returncode}; its last lines say why")
    if as_json:
        print(ended.stdout, end="")
        return
    table = Table("measure", "value", title=f"bench {name}")
    for measure, value in flat(json.loads(ended.stdout)):
        table.add_row(measure, str(value))
    console.print(table)


def benchmarks() -> dict[str, str]:
    """Name -> first line of its docstring. They are in a checkout, not in an installed wheel."""
    found = {}
    for path in sorted((ROOT / "benchmarks").glob("*.py")):
        text = path.read_text()
        if "\ndef main() -> None:" in text:
            found[path.stem.rstrip("_")] = text.removeprefix('"""').partition("\n")[0].rstrip('"')
    return found


def module(name: str) -> str:
    """A name that Python keeps for itself is that of a module with an underscore behind it."""
    return f"{name}_" if keyword.iskeyword(name) else name


def flat(found: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested results as dotted names."""
    for name, value in found.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
