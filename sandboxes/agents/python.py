"""The agent for `python` problems: a few calls of the interpreter, then the answer."""

from sandboxes.agents.loop import ToolAgent

PYTHON = ToolAgent(name="python", max_turns=16, max_tokens=1024)
