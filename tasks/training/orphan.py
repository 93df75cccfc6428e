"""No rank outlives torchrun: an orphan would train on beside the run that replaces it."""

import ctypes
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Asks Linux to kill this process when its parent is gone, also by kill -9; elsewhere the work folder's lock guards."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
