"""What was ordered about each engine, kept in one small file that all processes of a gateway read before a call.

So a pause that one process was told holds in all of them at once, and lasts over a crash of the gateway, as does that nobody
knows an engine's weights.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from sandboxes.gateway.engines.split import Split
from sandboxes.gateway.sessions.shared import SharedFile

NOBODY = ""  # as `trusted`: whatever runs there, its weights are not proven


class Order(BaseModel):
    """What holds for one engine. Moments are seconds since the epoch."""

    model_config = ConfigDict(extra="forbid")

    added: bool = False  # serves besides the engines the gateway was started with
    removed: bool = False
    drained_at: float | None = None  # sessions that made their first call before this stay
    paused_until: float = 0.0
    trusted: str | None = (
        None  # the start (see `engines_member.Seen`) whose weights may be believed; None: not seen yet
    )
    swaps: int = 0  # raised with whatever may have changed the weights: every process then looks before its next call

    def paused_s(self) -> float:
        """Seconds until the pause is over by itself; 0 where there is none."""
        return max(0.0, self.paused_until - time.time())


class Ordered(BaseModel):
    """All that was ordered."""

    model_config = ConfigDict(extra="forbid")

    engines: dict[str, Order] = {}
    split: Split | None = None


class Orders:
    """The file, by engine URL."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = SharedFile(path, TypeAdapter(Ordered), Ordered())

    def of(self, url: str) -> Order:
        """What holds for an engine now."""
        return self.all().get(url) or Order()

    def all(self) -> dict[str, Order]:
        """Every engine of which something was ordered."""
        return self._file.read().engines

    @property
    def split(self) -> Split | None:
        """How new sessions are parted between two versions; None where they are not."""
        return self._file.read().split

    def set_split(self, split: Split | None) -> None:
        with self._file.change() as ordered:
            ordered.split = split

    @contextmanager
    def change(self, url: str) -> Iterator[Order]:
        """One engine's order, to be changed in place; written when the block ends. One process at a time."""
        with self._file.change() as ordered:
            yield ordered.engines.setdefault(url, Order())

    def begin(self) -> None:
        """A gateway starts: its command line says which engines there are. All else that was ordered still holds, as nothing
        is proven by a new start.

        ValueError where the file cannot be read.
        """
        try:
            with self._file.change() as ordered:
                for order in ordered.engines.values():
                    order.added, order.removed = False, False
        except ValidationError as error:
            raise ValueError(
                f"{self._path} is no file of orders ({error.errors()[0]['msg']}). Remove it; then engines are neither paused nor "
                "draining, and their weights are believed as they are labelled"
            ) from error
