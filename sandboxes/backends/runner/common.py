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


@contextlib.contextmanager
def wholly_agent() -> Iterator[None]:
    """Real ids too: what is started meanwhile is the agent's for good, for exec(2) forgets whom we can become again."""
    if ROOT:
        os.setresgid(AGENT, AGENT, 0)
        os.setresuid(AGENT, AGENT, 0)
    try:
        yield
    finally:
        if ROOT:
            os.setresuid(0, 0, 0)
            os.setresgid(0, 0, 0)
