"""Boxes to run code in: `choose` a backend, `prepare` it once, `reap` what outlived its lease."""

import time
from collections.abc import Callable
from contextlib import suppress

from sandboxes.backends import cgroup, docker
from sandboxes.backends.base import BackendUnavailable
from sandboxes.backends.bubblewrap import Bubblewrap
from sandboxes.backends.docker import Docker
from sandboxes.backends.images import silent

__all__ = ["BACKENDS", "choose", "prepare", "reap"]

BACKENDS = ("auto", "docker", "bubblewrap")


def choose(name: str = "auto", *, progress: Callable[[str], None] = silent) -> Docker | Bubblewrap:
    """The backend of that name; `auto` is Docker if an engine answers, else bubblewrap.

    Raises BackendUnavailable, naming every cause. Nothing is built here: see `prepare`.
    """
    if name == "docker":
        return Docker(progress=progress)
    if name == "bubblewrap":
        return Bubblewrap(progress=progress)
    if name != "auto":
        raise ValueError(f"unknown backend {name!r}: use one of {', '.join(BACKENDS)}")
    try:
        return Docker(progress=progress)
    except BackendUnavailable as no_docker:
        try:
            return Bubblewrap(progress=progress)
        except BackendUnavailable as no_bubblewrap:
            raise BackendUnavailable(f"no isolation backend: {no_docker}; and {no_bubblewrap}") from no_bubblewrap


def prepare(name: str = "auto", *, progress: Callable[[str], None] = silent) -> Docker | Bubblewrap:
    """Choose a backend and make its root file system or image, so that no episode waits for it. Blocks."""
    backend = choose(name, progress=progress)
    backend.prepare()
    return backend


def reap(now: float | None = None) -> dict[str, int]:
    """Remove boxes past their lease, of every backend that can be had here; how many of each."""
    moment = time.time() if now is None else now
    reaped: dict[str, int] = {}
    with suppress(BackendUnavailable):  # no engine, so no boxes
        reaped["docker"] = docker.reap(docker.connect(), moment)
    with suppress(BackendUnavailable):  # without control groups every box ends with its controller
        reaped["bubblewrap"] = cgroup.reap(cgroup.parents(), moment)
    return reaped
