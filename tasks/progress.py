"""Progress of long work: a Prefect progress artifact in the UI, and whoever listens on the console."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from uuid import UUID

from prefect.artifacts import acreate_markdown_artifact, acreate_progress_artifact, aupdate_progress_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate

from tasks.showing import AWAY, ashow

log = logging.getLogger(__name__)

Listener = Callable[[str, int, int], None]  # what is being done, units done, units in all

listener: ContextVar[Listener | None] = ContextVar("listener", default=None)

UPDATE_S = 2.0  # an artifact update is a request to the server


@contextmanager
def listening(to: Listener) -> Iterator[None]:
    """Have every Progress below report to `to` as well."""
    token = listener.set(to)
    try:
        yield
    finally:
        listener.reset(token)


class Progress:
    """Counts units of one piece of work. Create it with `begin`, inside a flow or a task."""

    def __init__(self, what: str, total: int, artifact: UUID | None) -> None:
        self.what, self.total, self.done = what, total, 0
        self._artifact = artifact
        self._updated = time.monotonic()
        self._one_at_a_time = asyncio.Lock()

    @classmethod
    async def begin(cls, what: str, total: int) -> "Progress":
        progress = cls(what, total, await ashow(acreate_progress_artifact, progress=0.0, description=what))
        progress._tell()
        return progress

    async def advance(self, units: int = 1) -> None:
        self.done = min(self.total, self.done + units)
        self._tell()
        finished = self.done == self.total
        if finished or time.monotonic() - self._updated > UPDATE_S:
            self._updated = time.monotonic()
            async with self._one_at_a_time:  # two at once may arrive in either order, and the earlier count would stay
                await self._show()

    async def _show(self) -> None:
        if self._artifact is None:
            return
        try:
            await aupdate_progress_artifact(self._artifact, progress=100.0 * self.done / max(1, self.total))
        except AWAY as error:
            log.warning("the progress of %s could not be shown in Prefect: %s", self.what, error)

    def _tell(self) -> None:
        to = listener.get()
        if to is not None:
            to(self.what, self.done, self.total)


class Page:
    """A page of Markdown in Prefect that is written anew as things change. Create it with `begin`, inside a flow or a task."""

    def __init__(self, key: str, description: str) -> None:
        self._key, self._description = key, description
        self._artifact: UUID | None = None
        self._shown = ""

    @classmethod
    async def begin(cls, key: str, markdown: str, description: str) -> "Page":
        page = cls(key, description)
        await page.show(markdown)
        return page

    async def show(self, markdown: str) -> None:
        """Show this instead. A server that is away shows it later, or never: the work goes on."""
        if markdown == self._shown:
            return
        if self._artifact is None:
            what = {"key": self._key, "markdown": markdown, "description": self._description}
            self._artifact = await ashow(acreate_markdown_artifact, **what)
            self._shown = markdown if self._artifact else ""
            return
        try:
            async with get_client() as prefect:
                await prefect.update_artifact(self._artifact, ArtifactUpdate(data=markdown))
            self._shown = markdown
        except AWAY as error:
            log.warning("a page in Prefect could not be written: %s", error)


class Clock:
    """Adds up wall-clock seconds under names."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Count the seconds of a block, also of one that fails, under `stage`."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.add({stage: time.monotonic() - started})

    def add(self, seconds: Mapping[str, float]) -> None:
        """Take over what another clock counted."""
        for stage, amount in seconds.items():
            self.seconds[stage] = round(self.seconds.get(stage, 0.0) + amount, 2)
