"""One SQLite connection with a thread of its own. Writes that wait together are committed together.

A commit and the two changes of thread around it cost several times what the writes do, so under load they are shared:
while one group is being committed the next one gathers (group commit, as databases do it).
"""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True)
class Item:
    """One piece of work and who waits for it. All changes of a `write` are made or none."""

    work: Callable[[sqlite3.Connection], Any]
    write: bool
    future: asyncio.Future[Any]


class Commits:
    """Async front of a connection. Raises what the work raises, or what its commit does."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self._db = self._thread.submit(connect).result()
        self._waiting: deque[Item] = deque()
        self._busy = False  # a group is in the thread's hands

    async def write(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run `work` inside a transaction that it shares with others."""
        return await self._done(work, write=True)

    async def run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run `work` outside any transaction."""
        return await self._done(work, write=False)

    def close(self) -> None:
        """Finish what was handed over, then close the file."""
        self._thread.submit(self._group, list(self._waiting)).result()
        self._waiting.clear()
        self._thread.submit(self._db.close).result()
        self._thread.shutdown()

    async def _done(self, work: Callable[[sqlite3.Connection], Result], *, write: bool) -> Result:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        item = Item(work, write, future)
        self._waiting.append(item)
        if not self._busy:
            self._hand_over(loop)
        return await future  # a caller that is cancelled takes back nothing: the work is in other hands

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        group = list(self._waiting)
        self._waiting.clear()
        self._busy = True
        self._thread.submit(self._work_off, group, loop)

    def _work_off(self, group: list[Item], loop: asyncio.AbstractEventLoop) -> None:
        outcomes = self._group(group)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(self._tell, group, outcomes, loop)

    def _tell(self, group: list[Item], outcomes: list[Any], loop: asyncio.AbstractEventLoop) -> None:
        self._busy = False
        if self._waiting:
            self._hand_over(loop)
        for item, outcome in zip(group, outcomes, strict=True):
            if item.future.cancelled():
                continue
            if isinstance(outcome, BaseException):
                item.future.set_exception(outcome)
                item.future.exception()  # seen: whoever handed it over may be gone
            else:
                item.future.set_result(outcome)

    # ---- in the thread

    def _group(self, group: list[Item]) -> list[Any]:
        """The result or the exception of each, in order."""
        outcomes: list[Any] = []
        while len(outcomes) < len(group):
            first = group[len(outcomes)]
            if not first.write:
                outcomes.append(_outcome(lambda work=first.work: work(self._db)))  # type: ignore[misc]
                continue
            batch = [first]
            for item in group[len(outcomes) + 1 :]:
                if not item.write:
                    break
                batch.append(item)
            outcomes += self._together(batch)
        return outcomes

    def _together(self, batch: list[Item]) -> list[Any]:
        """One transaction for all; where it fails, one for each, so that nobody fails with another's work."""
        try:
            return self._transaction([item.work for item in batch])
        except Exception as error:  # noqa: BLE001 - whatever the work raises is its caller's
            if len(batch) == 1:
                return [error]
        return [_outcome(lambda work=item.work: self._transaction([work])[0]) for item in batch]  # type: ignore[misc]

    def _transaction(self, works: list[Callable[[sqlite3.Connection], Any]]) -> list[Any]:
        self._db.execute("begin immediate")
        try:
            results = [work(self._db) for work in works]
            self._db.execute("commit")
        except BaseException:  # whatever the work raised: the next group needs a connection without a transaction
            with suppress(sqlite3.Error):  # a full disk has rolled back by itself
                self._db.execute("rollback")
            raise
        return results


def _outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - its caller's
        return error
