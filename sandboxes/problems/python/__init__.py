"""Calculations: problems with one number as the answer, solved with a Python interpreter in the box."""

from sandboxes.problems.python import build, rows
from sandboxes.problems.python.kind import KIND

__all__ = ["KIND", "build", "rows"]
