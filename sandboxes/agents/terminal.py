"""The agent for `terminal` problems: commands, many of them."""

from sandboxes.agents.loop import ToolAgent

TERMINAL = ToolAgent(name="terminal", max_turns=50, max_tokens=2048)
