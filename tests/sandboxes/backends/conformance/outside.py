"""What runs in boxes, seen from outside of them: commands are told by a mark among their arguments."""

import asyncio
import secrets
import time

import psutil


def mark() -> str:
    """A number of seconds for `sleep` that no other process has."""
    return f"{3000 + secrets.randbelow(1000)}.{secrets.randbelow(10**9):09d}"


def marked(mark: str) -> list[psutil.Process]:
    """The processes of the machine, in whatever box, that have this among their arguments."""
    return [process for process in psutil.process_iter(["cmdline"]) if mark in (process.info["cmdline"] or ())]


async def until(condition, what: str, *, deadline_s: float = 15.0):
    """What `condition` returns once that is true.

    A command has started before it has its arguments: `exec` replaces the memory first, so whoever looks for a mark
    right after a start waits for it.
    """
    end = time.monotonic() + deadline_s
    while not (holds := condition()):
        assert time.monotonic() < end, f"not within {deadline_s} s: {what}"
        await asyncio.sleep(0.05)
    return holds
