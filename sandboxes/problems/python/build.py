"""The shipped set of python problems: every template drawn several times, each draw proved by running the oracle's code."""

import io
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from random import Random

from lakehouse.records import Problem, digest, now
from sandboxes.problems.python.answers import number
from sandboxes.problems.python.env import Spec
from sandboxes.problems.python.templates import TEMPLATES, Draft, Template

SOURCE = "lakeloop templates"
LICENCE = "Apache-2.0"
PER_TEMPLATE = 14
TRIES = 40  # draws per problem, before a template counts as broken


def build(*, per_template: int = PER_TEMPLATE, seed: int = 0) -> list[Problem]:
    """Proved problems; the same call gives the same ones. Whole templates are held out for evaluation."""
    return [problem for template in TEMPLATES for problem in _of(template, per_template, seed)]


def _of(template: Template, count: int, seed: int) -> Iterator[Problem]:
    known: set[str] = set()
    for index in range(count):
        for attempt in range(TRIES):
            draw = Random(f"{template.name} {seed} {index} {attempt}")  # noqa: S311 - repeatable, not secret
            draft = template.write(draw)
            if draft.question not in known and not _gives_away(draft) and _proved(draft):
                known.add(draft.question)
                yield _problem(template, draft)
                break
        else:
            raise RuntimeError(f"template {template.name} gave no valid problem in {TRIES} draws")


def _gives_away(draft: Draft) -> bool:
    """Whether the answer stands in the question, or is what anybody would guess first."""
    words = draft.question.replace("?", " ").replace("$", " ").replace("%", " ").split()
    return draft.answer in {number(word) for word in words} or draft.answer in (0, 1)


def _proved(draft: Draft) -> bool:
    """Whether the oracle's code prints the answer that the template computed in another way.

    Its `print` is its own: flows that log what they print replace the usual one, and other threads share stdout.
    """
    printed = io.StringIO()
    space: dict[str, object] = {"print": partial(print, file=printed)}
    for code in draft.cells:
        exec(code, space)  # noqa: S102 - code of our own templates
    lines = printed.getvalue().splitlines()
    return bool(lines) and number(lines[-1]) == draft.answer


def _problem(template: Template, draft: Draft) -> Problem:
    spec = Spec(
        template=template.name,
        answer=_written(draft.answer),
        tolerance=0.0 if draft.answer.denominator == 1 else 1e-4,
        cells=list(draft.cells),
    )
    return Problem(
        problem_id=f"python/{template.name}-{digest(draft.question)[:8]}",
        kind="python",
        source=SOURCE,
        split=template.split,
        title=template.name,
        prompt=draft.question,
        spec=spec.model_dump_json(),
        licence=LICENCE,
        allowed_uses=["training", "evaluation"],
        difficulty=template.difficulty,
        oracle_passed=True,
        null_failed=True,
        created_at=now(),
    )


def _written(value: Fraction) -> str:
    """As people write it: as a decimal where that ends soon, other fractions as such."""
    if value.denominator == 1 or 10_000 % value.denominator:
        return str(value)
    return f"{float(value):.4f}".rstrip("0")
