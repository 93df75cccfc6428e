"""Rubrics: SQL over evidence, in versions that stay. Files, judgements with their checks, examples, differences."""

from lakehouse.rubrics.differences import Difference, compare
from lakehouse.rubrics.examples import Outcome, check_examples
from lakehouse.rubrics.files import Asked, Rubric, RubricError, UnknownRubric, asked, current, rubrics
from lakehouse.rubrics.judging import Coverage, judge

__all__ = [
    "Asked",
    "Coverage",
    "Difference",
    "Outcome",
    "Rubric",
    "RubricError",
    "UnknownRubric",
    "asked",
    "check_examples",
    "compare",
    "current",
    "judge",
    "rubrics",
]
