"""The problem set in the repository. Sources are not in it: they are fetched and verified at first use."""

from collections.abc import Sequence
from pathlib import Path

from lakehouse.records import Problem
from sandboxes.problems.swe.sources import prefetch
from sandboxes.problems.swe.spec import DATA, read_spec, write_known

PROBLEMS = "problems.jsonl"
NODES = "nodes.json"


def load() -> list[Problem]:
    """The shipped problems, in a fixed order; their sources are fetched when first needed."""
    return read(DATA)


def read(folder: Path) -> list[Problem]:
    """Problems out of a built folder."""
    with (folder / PROBLEMS).open() as lines:
        return [Problem.model_validate_json(line) for line in lines]


def write(folder: Path, problems: Sequence[Problem]) -> None:
    """Problems by id, and the tests of the releases they use, into a folder: the order of building does not show."""
    folder.mkdir(parents=True, exist_ok=True)
    ordered = sorted(problems, key=lambda problem: problem.problem_id)
    (folder / PROBLEMS).write_text("".join(problem.model_dump_json(exclude_none=True) + "\n" for problem in ordered))
    specs = [read_spec(problem) for problem in problems]
    write_known(folder / NODES, {(spec.package, spec.tests_version) for spec in specs})


def fetch_sources(problems: Sequence[Problem]) -> None:
    """Fetch the sources of these problems now, several at a time."""
    specs = [read_spec(problem) for problem in problems]
    prefetch((spec.package, version) for spec in specs for version in (spec.version, spec.tests_version))
