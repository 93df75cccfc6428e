"""The agent for `swe` problems: long turns (whole edits), many of them."""

from sandboxes.agents.loop import ToolAgent

SWE = ToolAgent(name="swe", max_turns=40, max_tokens=2048)
