"""What python problems are written from. Each template computes its answer in one way, and its code in another."""

from sandboxes.problems.python.templates import counting, money, numbers, processes
from sandboxes.problems.python.templates.base import Draft, Template

TEMPLATES: tuple[Template, ...] = (*money.TEMPLATES, *numbers.TEMPLATES, *counting.TEMPLATES, *processes.TEMPLATES)

__all__ = ["TEMPLATES", "Draft", "Template"]
