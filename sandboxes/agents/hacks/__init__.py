"""The reward-hack corpus: `lakeloop problems attack` plays it, and every hack must score nothing."""

from sandboxes.agents.hacks import search, swe_files, swe_process, swe_runner
from sandboxes.agents.hacks.base import Hack

HACKS: dict[str, Hack] = {
    hack.name: hack for module in (swe_files, swe_process, swe_runner, search) for hack in module.HACKS
}

__all__ = ["HACKS", "Hack"]
