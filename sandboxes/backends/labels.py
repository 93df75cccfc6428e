"""What a box is labelled with, so that whoever finds one knows whose it is: Docker's labels, bubblewrap's environment."""

from collections.abc import Mapping
from dataclasses import replace

from sandboxes.backends.base import Backend, Box, BoxSpec

RUN = "lakeloop.run"
EPISODE = "lakeloop.episode"


class Labelled:
    """A `Backend` that starts boxes of another one with these labels beside their own."""

    def __init__(self, backend: Backend, labels: Mapping[str, str]) -> None:
        self.name = backend.name
        self._backend = backend
        self._labels = dict(labels)

    async def start(self, spec: BoxSpec) -> Box:
        """A box of the other backend."""
        return await self._backend.start(replace(spec, labels={**self._labels, **spec.labels}))
