"""Tasks in a terminal, as Harbor and terminal-bench keep them: an instruction, an environment, tests that a script runs."""

from sandboxes.problems.terminal import folder
from sandboxes.problems.terminal.kind import KIND

__all__ = ["KIND", "folder"]
