"""Agents by name. An agent needs a base URL and a key; it knows neither the lake nor the gateway."""

from pathlib import Path

from sandboxes.agents.base import Agent, Endpoint, Sampling
from sandboxes.agents.closed_book import ClosedBook
from sandboxes.agents.command import CommandAgent, DefinitionError, read, shipped
from sandboxes.agents.expert import Expert
from sandboxes.agents.hacks import HACKS
from sandboxes.agents.null import Null
from sandboxes.agents.python import PYTHON
from sandboxes.agents.scripted import Scripted
from sandboxes.agents.search import SEARCH
from sandboxes.agents.swe import SWE
from sandboxes.agents.terminal import TERMINAL

AGENTS: dict[str, Agent] = {
    agent.name: agent for agent in (SWE, SEARCH, PYTHON, TERMINAL, ClosedBook(), Expert(), Null(), Scripted())
}

COMMANDS: dict[str, CommandAgent] = {agent.name: agent for agent in shipped()}

__all__ = ["AGENTS", "COMMANDS", "Agent", "CommandAgent", "DefinitionError", "Endpoint", "Sampling", "find"]


def find(name: str) -> Agent:
    """The agent of a name, or the one that a file NAME.toml defines. DefinitionError where there is none."""
    if name.endswith(".toml"):
        agent = read(Path(name))
        if agent.name in AGENTS or agent.name in COMMANDS:
            raise DefinitionError(f"{name}: `name` {agent.name!r} is taken by an agent that comes with Lakeloop")
        return agent
    known: dict[str, Agent] = {**AGENTS, **COMMANDS}
    if name not in known and name not in HACKS:
        raise DefinitionError(f"no agent is called {name!r}; there are {', '.join(sorted(known))}, or a file NAME.toml")
    return known.get(name) or HACKS[name]
