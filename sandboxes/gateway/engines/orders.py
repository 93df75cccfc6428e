"""What was ordered about each engine, kept in one small file that all processes of a gateway read before a call.

So a pause that one process was told holds in all of them at once, and lasts over a crash of the gateway.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from pydantic import BaseModel, ConfigDict, TypeAdapter

LOOK_AGAIN_S = 0.002  # what another process ordered is seen this soon
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

    def paused_s(self) -> float:
        """Seconds until the pause is over by itself; 0 where there is none."""
        return max(0.0, self.paused_until - time.time())


ALL = TypeAdapter(dict[str, Order])


class Orders:
    """The file, by engine URL."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mark: tuple[int, int] | None = None
        self._orders: dict[str, Order] = {}
        self._looked = 0.0

    def of(self, url: str) -> Order:
        """What holds for an engine now."""
        return self.all().get(url) or Order()

    def all(self) -> dict[str, Order]:
        """Every engine of which something was ordered. The file is read again only where it is another one."""
        moment = time.monotonic()
        if moment < self._looked + LOOK_AGAIN_S:  # one call asks a dozen times
            return self._orders
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            self._mark, self._orders = None, {}
        else:
            mark = (found.st_ino, found.st_mtime_ns)
            if mark != self._mark:
                self._orders = ALL.validate_json(self._path.read_bytes())
                self._mark = mark
        self._looked = moment
        return self._orders

    @contextmanager
    def change(self, url: str) -> Iterator[Order]:
        """One engine's order, to be changed in place; written when the block ends. One process at a time."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with _private(self._path.with_suffix(".lock")) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # held for one small write
            self._looked = 0.0
            orders = {key: order.model_copy() for key, order in self.all().items()}
            order = orders.setdefault(url, Order())
            yield order
            draft = self._path.with_suffix(".draft")  # another inode each time, which is how readers notice
            with _private(draft) as file:
                file.write(json.dumps({key: one.model_dump() for key, one in orders.items()}))
            draft.replace(self._path)
            self._looked = 0.0

    def forget(self) -> None:
        """Start afresh: who starts a gateway says with it which engines it may use, and trusts them as they are."""
        self._path.unlink(missing_ok=True)
        self._looked = 0.0


def _private(path: Path) -> TextIO:
    """A file to write that only its owner may read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w")
