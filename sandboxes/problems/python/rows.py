"""Rows in GSM8K's form (arXiv 2110.14168): `question`, and `answer`, a worked solution that ends in `#### 42`."""

import re
from pathlib import Path

from lakehouse.records import Problem, digest, now
from sandboxes.problems.foreign import BadRow, Terms, read_rows, texts
from sandboxes.problems.python.answers import number
from sandboxes.problems.python.env import Spec

DIFFICULTY = 0.3
_CALCULATION = re.compile(r"<<([-+*/().\d\s]{1,200})=[^<>]{1,40}>>")  # GSM8K's calculator annotations


def problems(path: Path, terms: Terms) -> list[Problem]:
    """Problems from a file of rows. BadRow for the first row that is none.

    The oracle repeats the calculations that the solution is annotated with and gives its answer.
    """
    found: dict[str, Problem] = {}
    for index, row in enumerate(read_rows(path)):
        where = f"row {index} of {path.name}"
        question, solution = texts(row, ("question", "answer"), where)
        value = number(solution)
        if "####" not in solution or value is None:
            raise BadRow(f"{where}: 'answer' must end in '#### NUMBER', this one ends in {solution[-40:]!r}")
        cells = [f"print({formula.strip()})" for formula in _CALCULATION.findall(solution)]
        spec = Spec(template=f"rows/{terms.name}", answer=str(value), tolerance=1e-6, cells=cells)
        problem_id = f"python/{terms.name}/{digest(question)[:12]}"
        found[problem_id] = Problem(
            problem_id=problem_id,
            kind="python",
            source=terms.name,
            split=terms.split,
            title=question.strip().split("\n")[0][:80],
            prompt=question.strip(),
            spec=spec.model_dump_json(),
            licence=terms.licence,
            allowed_uses=list(terms.allowed_uses),
            difficulty=DIFFICULTY,
            oracle_passed=False,
            null_failed=False,
            ungated=True,  # until `lakeloop problems import` has run the gates
            created_at=now(),
        )
    return list(found.values())
