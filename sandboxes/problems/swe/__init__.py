"""Bugs in real packages: find them, repair them, judged by the packages' own tests."""

from sandboxes.problems.swe.kind import KIND
from sandboxes.problems.swe.shipped import load

__all__ = ["KIND", "load"]
