"""Boxes to run code in: `choose` a backend, `prepare` it once, `reap` what outlived its lease."""

import time
from collections.abc import Callable
from contextlib import suppress

from sandboxes.backends import cgroup, docker
from sandboxes.backends.base import BackendUnavailable, BoxSpec
from sandboxes.backends.bubblewrap import Bubblewrap
from sandboxes.backends.docker import Docker, docker_client
from sandboxes.backends.images import silent

__all__ = ["BACKENDS", "choose", "docker_client", "prepare", "reap", "tools_of"]

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
    """Choose a backend and make its standard image, if it is not there, before any episode. Blocks."""
    backend = choose(name, progress=progress)
    backend.prepare()
    return backend


async def tools_of(backend: Docker | Bubblewrap, image: str) -> dict[str, str]:
    """What a box on an image has of what problems ask for: tool -> the first line it says of itself, or nothing.

    ImageMissing or Unfit where the image cannot be a box.
    """
    found = {}
    box = await backend.start(BoxSpec(image=image))
    try:
        for tool in ("sh", "bash", "python3", "pytest", "git"):
            path = (await box.exec(["/bin/sh", "-c", f"command -v {tool}"], timeout_s=30)).stdout.decode().strip()
            said = (await box.exec([tool, "--version"], timeout_s=30)).stdout.decode(errors="replace") if path else ""
            found[tool] = said.partition("\n")[0] or path
    finally:
        await box.close()
    return found


def reap(now: float | None = None) -> dict[str, int]:
    """Remove boxes past their lease, of every backend that can be had here; how many of each."""
    moment = time.time() if now is None else now
    reaped: dict[str, int] = {}
    client = docker_client()
    if client is not None:
        reaped["docker"] = docker.reap(client, moment)
    with suppress(BackendUnavailable):  # without control groups every box ends with its controller
        reaped["bubblewrap"] = cgroup.reap(cgroup.parents(), moment)
    return reaped
