"""Boxes to run code in: `choose` a backend, `reap` what outlived its lease."""

from sandboxes.backends.base import Backend
from sandboxes.backends.bubblewrap import Bubblewrap

__all__ = ["BACKENDS", "choose"]

BACKENDS = ("auto", "bubblewrap")


def choose(name: str = "auto") -> Backend:
    """The backend of that name. BackendUnavailable names every cause."""
    if name in ("auto", "bubblewrap"):
        return Bubblewrap()
    raise ValueError(f"unknown backend {name!r}: use one of {', '.join(BACKENDS)}")
