"""A warm pool: boxes kept started, so that who asks for one does not wait for its start.

A box is given out once and never comes back: what was done in it is nobody else's. The pool learns from what is asked for: a
request that it cannot serve at once makes it keep one box more of that kind, up to `size` in all.
"""

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol, Self

from sandboxes.backends.base import Box, BoxSpec, Limits, SandboxError

WARM_S = 120.0
CLOSING_S = 30.0
START_S = 5.0  # more lease for the start; what that leaves is for requests that are longer than any before by moments
Key = tuple[str | None, Limits]
Waiting = tuple[float, float, "Assignable"]  # since when it waits, the lease that it can give, the box

log = logging.getLogger(__name__)


class Assignable(Box, Protocol):
    """A box that can be started first and told later what it is for."""

    async def assign(self, spec: BoxSpec) -> None:
        """Take on work tree, environment and lease of a spec of the same image and limits."""
        ...


class Starting(Protocol):
    """A backend of such boxes."""

    name: str

    async def start(self, spec: BoxSpec) -> Assignable: ...


class Pool:
    """A `Backend` over another one: `async with Pool(backend, size=4) as pool: box = await pool.start(spec)`.

    Boxes are alike where image and limits are. One that has waited `warm_s` seconds is closed, so a pool that nobody
    asks drains. It is started with the longest lease that was asked for so far, `warm_s` and a start more, because what
    is written on a box for the reaper cannot be changed later; whoever gets it has the lease that he asked for. Boxes
    that see a gateway are never kept. `labels` are what a box is labelled with before it is known whose it will be.
    Leaving the block closes what waits.
    """

    def __init__(
        self, backend: Starting, *, size: int, warm_s: float = WARM_S, labels: Mapping[str, str] | None = None
    ) -> None:
        if size < 1:
            raise ValueError("a pool of no box is no pool: use the backend itself")
        self.name = backend.name
        self.served_warm = 0
        self.served_cold = 0
        self._backend = backend
        self._size = size
        self._warm_s = warm_s
        self._labels = dict(labels or {})
        self._waiting: OrderedDict[Key, deque[Waiting]] = OrderedDict()  # the key asked for last is last
        self._leases: dict[Key, float] = {}  # the longest that was asked for
        self._keeping: set[asyncio.Task[None]] = set()  # tasks that start boxes, and the one that looks after them
        self._closing: set[asyncio.Task[None]] = set()
        self._filling = 0
        self._urgent = 0  # who waits for a cold start; filling gives way to them
        self._calm = asyncio.Event()
        self._calm.set()
        self._one_by_one = asyncio.Lock()
        self._open = False

    async def __aenter__(self) -> Self:
        self._open = True
        _spawn(self._tend(), self._keeping)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        for task in self._keeping:
            task.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)
        for boxes in self._waiting.values():
            for *_, box in boxes:
                self._close(box)
        self._waiting.clear()
        await asyncio.gather(*self._closing)

    async def start(self, spec: BoxSpec) -> Box:
        """A box of its own for who asks: a warm one if there is one, else one started now. SandboxError if none can be had."""
        if not self._open:
            raise SandboxError("the pool is closed")
        if spec.gateway is not None:
            return await self._backend.start(spec)
        key, spec = (spec.image, spec.limits), spec.leased()
        self._leases[key] = max(spec.limits.lease_s, self._leases.get(key, 0.0))
        while (box := self._take(key, spec.limits.lease_s)) is not None:
            self._fill(key)
            try:
                await box.assign(spec)
            except SandboxError as error:  # it ended while it waited
                log.info("a warm box was gone: %s", error)
                await _close(box)
                continue
            except BaseException:  # a cancelled caller too: nobody else knows of this box any more
                await _close(box)
                raise
            self.served_warm += 1
            return box
        self.served_cold += 1
        self._urgent += 1
        self._calm.clear()
        try:
            return await self._backend.start(spec)
        finally:
            self._urgent -= 1
            if not self._urgent:
                self._calm.set()
            self._fill(key)

    def _take(self, key: Key, lease_s: float) -> Assignable | None:
        waiting = self._waiting.setdefault(key, deque())
        self._waiting.move_to_end(key)
        while waiting:
            since, can_give_s, box = waiting.popleft()
            if time.monotonic() - since < self._warm_s and can_give_s >= lease_s:
                return box
            self._close(box)
        return None

    def _fill(self, key: Key) -> None:
        """Start one more box of a kind in the background, if there is room or a box of another kind can make some."""
        if not self._open:
            return
        if sum(map(len, self._waiting.values())) + self._filling >= self._size:
            other = next((boxes for known, boxes in self._waiting.items() if boxes and known != key), None)
            if other is None:
                return
            self._close(other.popleft()[-1])
        self._filling += 1
        _spawn(self._start_one(key), self._keeping)

    async def _start_one(self, key: Key) -> None:
        image, limits = key
        longer = replace(limits, lease_s=self._leases[key] + self._warm_s + START_S)
        try:
            async with self._one_by_one:
                await self._calm.wait()
                started = time.monotonic()
                box = await self._backend.start(BoxSpec(image=image, limits=longer, labels=self._labels))
        except SandboxError as error:  # who asks next starts one himself, and is told what is wrong
            log.warning("no box can be kept warm: %s", error)
            return
        finally:
            self._filling -= 1
        ready = time.monotonic()
        self._waiting.setdefault(key, deque()).append((ready, longer.lease_s - self._warm_s - (ready - started), box))

    async def _tend(self) -> None:
        """Close boxes that have waited too long."""
        while True:
            await asyncio.sleep(self._warm_s / 4)
            for boxes in self._waiting.values():
                while boxes and time.monotonic() - boxes[0][0] >= self._warm_s:
                    self._close(boxes.popleft()[-1])

    def _close(self, box: Box) -> None:
        _spawn(_close(box), self._closing)


def _spawn(work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
    task = asyncio.get_running_loop().create_task(work, context=Context())  # under no caller's deadline
    tasks.add(task)
    task.add_done_callback(tasks.discard)


async def _close(box: Box) -> None:
    """Nobody is interested in how a box that nobody used ends; its lease ends what this cannot."""
    with suppress(SandboxError, TimeoutError):
        async with asyncio.timeout(CLOSING_S):
            await box.close()
