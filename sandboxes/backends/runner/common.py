"""What all parts of the runner know."""

import contextlib
import ctypes
import os
from collections.abc import Iterator

WORKDIR = "/testbed"
AGENT = 1000
ROOT = os.geteuid() == 0
CHUNK = 1 << 16
LONGEST_WAIT_S = 3600.0  # at once: poll takes no more than 24 days

PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
libc = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """The request asks for what a box does not give."""


@contextlib.contextmanager
def as_agent() -> Iterator[None]:
    """The agent's file rights; our real uid stays root, so no process of the agent's could touch us even then."""
    if ROOT:
        os.setegid(AGENT)
        os.seteuid(AGENT)
    try:
        yield
    finally:
        if ROOT:
            os.seteuid(0)
            os.setegid(0)


def become_agent() -> None:
    """For good, in a child."""
    if ROOT:
        os.setgroups([])
        os.setresgid(AGENT, AGENT, AGENT)
        os.setresuid(AGENT, AGENT, AGENT)
