"""The agent for `search` problems: short turns, few of them."""

from sandboxes.agents.loop import ToolAgent

SEARCH = ToolAgent(name="search", max_turns=16, max_tokens=512)
