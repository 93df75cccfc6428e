"""The loop: collectors keep groups in flight while the trainer trains; each waits only for what it needs.

Three tasks of one event loop share a `Book`. `_collect` begins as many groups as admission lets in; `_settle` lands and judges
what has ended, all that ended while the landing before was under way at once; `_improve` takes a batch as soon as there is one,
trains it, puts the version in service and has it examined. With a staleness of 0 the same code takes turns.

Nothing here outlives the process: a loop that is killed begins again with what `Parts.recall` finds. Time is the event loop's.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic

from tasks.loop.admission import Terms, check
from tasks.loop.book import Book
from tasks.loop.parts import Begun, Parts, Played

PATIENCE = 4  # batches of groups in a row that do not count


class Starved(RuntimeError):
    """No batch comes together; the message says what there is, what was dropped and why, and since when."""


@dataclass
class Turn:
    """One step of the loop, as it went in this process. `seconds` by what they were spent on; `collect` is waiting for a batch."""

    number: int  # from 0 on
    groups: frozenset[str]
    version: int | None = None  # None: nothing to train on
    seconds: dict[str, float] = field(default_factory=dict)


class Loop(Generic[Begun, Played]):
    """One loop in one process. `tell` gets a line for people now and then."""

    def __init__(
        self, terms: Terms, parts: Parts[Begun, Played], tell: Callable[[str], None] = lambda said: None
    ) -> None:
        check(terms)
        self.terms, self.parts, self._tell = terms, parts, tell
        self.book: Book  # from `run` on
        self._ended: asyncio.Queue[Played] = asyncio.Queue()
        self._news = asyncio.Event()
        self._since = 0.0  # when a group that counts settled, or a step ended, last
        self._in_vain = 0  # groups since then that do not count
        self._examined: int | None = None  # the version that was examined last by this process

    async def run(self) -> list[Turn]:
        """Go on until all steps are done; those of this process. Starved, or what a part raised, ends it at once."""
        self.book = Book(self.terms, await self.parts.recall(), await self.parts.standing())
        turns: list[Turn] = []
        try:
            async with asyncio.TaskGroup() as tasks:
                background = [tasks.create_task(self._collect()), tasks.create_task(self._settle())]
                await tasks.create_task(self._improve(turns))
                for task in background:
                    task.cancel()
        except BaseExceptionGroup as failures:
            raise _first(failures) from failures
        return turns

    async def _collect(self) -> None:
        async with asyncio.TaskGroup() as playing:
            while True:
                while not (count := self._room()):
                    await self._news.wait()
                groups = await self.parts.begin(count, self.book.poison)
                self.book.begin(groups)
                playing.create_task(self.parts.play(groups, self._ended.put_nowait))

    async def _settle(self) -> None:
        while True:
            played = [await self._ended.get()]
            while not self._ended.empty():
                played.append(self._ended.get_nowait())
            known = set(self.book.poison)
            for group in await self.parts.settle(played):
                if self.book.settle(group) is None:
                    self._fed()
                else:
                    self._in_vain += 1
            for problem, how in self.book.poison.items():
                if problem not in known:
                    self._tell(f"{problem} is not drawn any more, none of its groups could be scored: {how}")
            self._happened()

    async def _improve(self, turns: list[Turn]) -> None:
        if self.book.steps and self.book.steps[-1].finished:
            await self._examine(self.book.steps[-1].number)  # a crash may have come before it
        while self.book.turns < self.terms.steps:
            clock = _Clock()
            step = self.book.open() or self.book.take(await self._batch())
            clock.read("collect")
            self._happened()
            version = step.version if step.version is not None else await self.parts.train(step.number, step.groups)
            clock.read("train")
            if version is not None and await self.parts.serve(step.number, version):
                clock.read("release")
            await self._look()
            self.book.finish(version)
            self._fed()
            self._happened()
            if await self._examine(step.number):
                clock.read("evaluate")
            turns.append(Turn(step.number, step.groups, version, clock.seconds))

    async def _examine(self, number: int) -> bool:
        """After a due step, also one that was passed over: have the version in service examined; whether it was.

        Not where it is none of the loop's own, and only once by a process. One that goes on examines it once more, for nobody
        knows how far the last one came.
        """
        due = (number + 1) % self.terms.evaluate_every == 0 or number + 1 == self.terms.steps
        version = self.book.standing.version
        own = any(step.version == version for step in self.book.steps)
        if not due or not own or version == self._examined:
            return False
        await self.parts.examine(number, version)
        self._examined = version
        return True

    async def _batch(self) -> Sequence[str]:
        """The next batch, as soon as there is one."""
        self._since = asyncio.get_running_loop().time()
        while True:
            news = self._news
            # Right before training, too: what comes of it is of no use where somebody moved the champion.
            await self._look()
            if (batch := self.book.batch()) is not None:
                break
            if self._in_vain >= self._patience and not self.book.running:
                raise self._starved(f"the last {self._in_vain} groups cannot be trained on")
            try:
                async with asyncio.timeout_at(self._since + self.terms.starved_s):
                    await news.wait()
            except TimeoutError:
                raise self._starved(f"for {self.terms.starved_s:.0f} s no group came that can be trained on") from None
        if dropped := self.book.dropped():
            told = ", ".join(f"{count} {reason}" for reason, count in dropped.most_common())
            self._tell(f"step {len(self.book.steps) + 1} drops groups: {told}")
        return batch

    async def _look(self) -> None:
        """See which version the loop goes on from. Another one makes other groups count."""
        standing = await self.parts.standing()
        moved = standing.version != self.book.standing.version
        self.book.standing = standing
        if moved:
            self._fed()
            self._happened()

    def _room(self) -> int:
        """How many groups may begin; none where so many came in vain that somebody must look."""
        return self.book.capacity() if self._in_vain < self._patience else 0

    @property
    def _patience(self) -> int:
        return PATIENCE * self.terms.batch

    def _starved(self, why: str) -> Starved:
        return Starved(f"the loop waits in vain: {why}. {self.book.picture()}. docs/loop.md says what to do")

    def _fed(self) -> None:
        self._since, self._in_vain = asyncio.get_running_loop().time(), 0

    def _happened(self) -> None:
        """Wake whoever waits for news."""
        self._news.set()
        self._news = asyncio.Event()


class _Clock:
    """Seconds by stage, each from the end of the one before."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = asyncio.get_running_loop().time()

    def read(self, stage: str) -> None:
        now = asyncio.get_running_loop().time()
        self.seconds[stage] = round(now - self._last, 2)
        self._last = now


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """What went wrong first, which is what to tell; the rest is its echo."""
    first = failures.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
