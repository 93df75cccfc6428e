"""Agents by name. An agent needs a base URL and a key; it knows neither the lake nor the gateway."""

from sandboxes.agents.base import Agent, Endpoint, Sampling
from sandboxes.agents.expert import Expert
from sandboxes.agents.null import Null
from sandboxes.agents.python import PYTHON
from sandboxes.agents.scripted import Scripted
from sandboxes.agents.search import SEARCH
from sandboxes.agents.swe import SWE

AGENTS: dict[str, Agent] = {agent.name: agent for agent in (SWE, SEARCH, PYTHON, Expert(), Null(), Scripted())}

__all__ = ["AGENTS", "Agent", "Endpoint", "Sampling"]
