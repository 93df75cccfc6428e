"""Rows in GSM8K's form (arXiv 2110.14168): `question`, and `answer`, a worked solution that ends in `#### 42`."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lakehouse.records import Problem, Split, digest, now
from sandboxes.problems.python.answers import number
from sandboxes.problems.python.env import Spec

_CALCULATION = re.compile(r"<<([-+*/().\d\s%]{1,200})=([^<>]{1,40})>>")  # GSM8K's calculator annotations


class BadRow(ValueError):
    """A row that is no problem. The text says which and why."""


def problems(
    rows: Iterable[Mapping[str, Any]],
    *,
    name: str,
    split: Split,
    licence: str,
    allowed_uses: list[str],
    difficulty: float = 0.3,
) -> list[Problem]:
    """Problems from rows. `name` is the collection's, as in the ids. BadRow for the first row that is none.

    The oracle repeats the calculations that the solution is annotated with and gives its answer.
    """
    found: dict[str, Problem] = {}
    for index, row in enumerate(rows):
        question, answer = row.get("question"), row.get("answer")
        if not isinstance(question, str) or not isinstance(answer, str) or not question.strip():
            raise BadRow(
                f"row {index} of {name}: a row has the texts 'question' and 'answer', this one has {sorted(row)}"
            )
        value = number(answer)
        if "####" not in answer or value is None:
            raise BadRow(
                f"row {index} of {name}: 'answer' must end in '#### NUMBER', this one ends in {answer[-40:]!r}"
            )
        cells = [f"print({formula.strip()})" for formula, _ in _CALCULATION.findall(answer) if "%" not in formula]
        spec = Spec(template=f"rows/{name}", answer=str(value), tolerance=1e-6, cells=cells)
        problem_id = f"python/{name}/{digest(question)[:12]}"
        found[problem_id] = Problem(
            problem_id=problem_id,
            kind="python",
            source=name,
            split=split,
            title=question.strip().split("\n")[0][:80],
            prompt=question.strip(),
            spec=spec.model_dump_json(),
            licence=licence,
            allowed_uses=allowed_uses,
            difficulty=difficulty,
            oracle_passed=True,  # the answer is a number, and the grader reads it
            null_failed=True,
            created_at=now(),
        )
    return list(found.values())


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a .jsonl or .parquet file. BadRow where it is neither."""
    import polars as pl  # noqa: PLC0415 - only an import of rows needs it

    if path.suffix == ".parquet":
        return pl.read_parquet(path).to_dicts()
    if path.suffix in (".jsonl", ".ndjson"):
        return pl.read_ndjson(path, infer_schema_length=None).to_dicts()
    raise BadRow(f"{path.name}: rows are read from .jsonl and .parquet files")
