"""A backend whose boxes have the root file system that a repository asks for."""

from dataclasses import replace

from sandboxes.backends.base import Backend, Box, BoxSpec


class _Within:
    def __init__(self, backend: Backend, image: str) -> None:
        self.name = backend.name
        self._backend = backend
        self._image = image

    async def start(self, spec: BoxSpec) -> Box:
        return await self._backend.start(replace(spec, image=self._image))


def within(backend: Backend, image: str | None) -> Backend:
    """`base.Backend` with boxes of this image (docker: a name, bubblewrap: a folder); the backend itself where it is None."""
    return backend if image is None else _Within(backend, image)
