"""What an application says of its problems: one row each, so that their episodes may be trained on.

Columns: problem_id (the task_id its sessions are started with), title, prompt, difficulty (0 to 1), oracle_passed,
null_failed (what the application's own gates said), and split, where the rows are of both.
"""

from pathlib import Path
from typing import Any

from lakehouse.records import Problem, dumps, now
from sandboxes.problems.foreign import BadRow, Terms, read_rows, texts

COLUMNS = {"problem_id", "title", "prompt", "difficulty", "oracle_passed", "null_failed", "split"}


def problems(path: Path, terms: Terms) -> list[Problem]:
    """Problems from a file of rows. BadRow for the first row that is none."""
    return [_problem(row, terms, f"row {index} of {path.name}") for index, row in enumerate(read_rows(path))]


def _problem(row: dict[str, Any], terms: Terms, where: str) -> Problem:
    unknown = sorted(set(row) - COLUMNS)
    if unknown:
        raise BadRow(f"{where}: {unknown[0]!r} is no column of these rows; there are {', '.join(sorted(COLUMNS))}")
    problem_id, title, prompt = texts(row, ("problem_id", "title", "prompt"), where)
    for name in ("oracle_passed", "null_failed"):
        if not isinstance(row.get(name), bool):
            raise BadRow(f"{where}: {name!r} must say true or false: the application runs its own gates")
    difficulty = row.get("difficulty", 0.5)
    if isinstance(difficulty, bool) or not isinstance(difficulty, int | float) or not 0 <= difficulty <= 1:
        raise BadRow(f"{where}: 'difficulty' must be a number from 0 to 1")
    split = row.get("split") or terms.split
    if split not in ("train", "eval"):
        raise BadRow(f"{where}: 'split' must be train or eval")
    return Problem(
        problem_id=problem_id,
        kind="external",
        source=terms.name,
        split=split,
        title=title,
        prompt=prompt,
        spec=dumps({}),
        licence=terms.licence,
        allowed_uses=list(terms.allowed_uses),
        difficulty=difficulty,
        oracle_passed=row["oracle_passed"],
        null_failed=row["null_failed"],
        created_at=now(),
    )
