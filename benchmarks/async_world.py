"""The parts of a loop, simulated: problems without end, engines, a trainer, and a lake that outlives the process."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from benchmarks.async_devices import Engine, Work
from benchmarks.async_shapes import Episode, Shape
from tasks.loop.admission import Terms, drops
from tasks.loop.parts import Group, Settled, Standing, State, Step

Swap = Literal["keep", "wait", "abort", "drain"]
BEGIN_S = 0.5  # writing down which groups shall be played
SETTLE_S = 1.0  # landing and judging what has ended
STORE_S = 5.0  # from a trained batch to a registered version: selection, checkpoint, MLflow
SWAP_S = 1.5  # an engine stands still while it reads weights
PROVE_S = 1.0  # the proof after it, while generation goes on


@dataclass(frozen=True)
class Sampled:
    """A sample as it landed."""

    versions: frozenset[int]
    tokens: int


@dataclass(frozen=True)
class Split:
    """Devices that sample, and devices that train; `shared`: the same ones, in turn."""

    sample: int
    train: int
    shared: bool = False

    @property
    def devices(self) -> int:
        return self.sample if self.shared else self.sample + self.train


@dataclass(frozen=True)
class Mark:
    """The end of a step."""

    at: float
    sampled: Work
    trained: Work
    dropped: int  # tokens sampled in vain, until then


@dataclass
class World:
    """One loop's surroundings. Samples are the same for a seed, whatever is done with them."""

    shape: Shape
    terms: Terms
    split: Split
    swap: Swap = "keep"
    one_by_one: bool = False  # engines are swapped one after another
    seed: int = 0
    marks: list[Mark] = field(default_factory=list)
    ages: Counter[int] = field(default_factory=Counter)  # of trained samples, in versions, by their oldest token
    lost: int = 0  # tokens that no step will ever see: too old, or of a loop that was killed
    trained: int = 0  # tokens

    def __post_init__(self) -> None:
        self.sampled, self._trained = Work(), Work()
        self._lake: dict[str, list[Sampled] | None] = {}  # group -> its samples, in the order in which groups settled
        self._steps: list[Step] = []
        self._version = 0
        self._begun = 0
        self._left: list[str] = []
        self._engines: list[Engine] = []
        self._open: asyncio.Event  # episodes may begin
        self._places: asyncio.Semaphore
        self._playing = 0
        self._empty: asyncio.Event | None = None

    async def recall(self) -> State:
        """A process begins."""
        if not self._engines:
            self._engines = [Engine(self.shape.policy, 0, self.sampled) for _ in range(self.split.sample)]
        self._open = asyncio.Event()
        self._open.set()
        self._places = asyncio.Semaphore(self.shape.policy.slots * self.split.sample)
        self._left = [name for name, samples in self._lake.items() if samples is None]
        held = [self._settled(name, samples) for name, samples in self._lake.items() if samples is not None]
        return State(held, tuple(self._steps))

    async def standing(self) -> Standing:
        return Standing(self._version, frozenset(range(self._version + 1)))

    async def begin(self, count: int, without: Collection[str]) -> Sequence[Group]:
        await asyncio.sleep(BEGIN_S)
        again, self._left = self._left[:count], self._left[count:]
        new = [f"g{self._begun + number}" for number in range(count - len(again))]
        self._begun += len(new)
        self._lake |= dict.fromkeys(new)
        return [Group(name, name) for name in (*again, *new)]

    async def play(self, groups: Sequence[Group], ended: Callable[[tuple[str, list[Sampled]]], None]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for group in groups:
                tasks.create_task(self._group(group.group_id, ended))

    async def _group(self, name: str, ended: Callable[[tuple[str, list[Sampled]]], None]) -> None:
        samples = (self._sample(f"{self.seed}/{name}/{number}") for number in range(self.terms.samples))
        ended((name, await asyncio.gather(*samples)))

    async def _sample(self, name: str) -> Sampled:
        async with self._places:
            await self._open.wait()
            return await self._episode(self.shape.draw(random.Random(name)))

    async def _episode(self, episode: Episode) -> Sampled:
        engine = min(self._engines, key=lambda one: one.sessions)
        engine.sessions += 1
        self._playing += 1
        versions: frozenset[int] = frozenset()
        context, cached, sampled = 0, -1, 0
        try:
            await asyncio.sleep(episode.outside_s / 2)
            for turn in episode.turns:
                context += turn.prompt
                new = turn.prompt if cached == engine.version else context  # a swap empties the cache of prefixes
                found = await engine.sample(turn.tokens, context=context, prefill=new)
                versions, cached = versions | found, engine.version
                context, sampled = context + turn.tokens, sampled + turn.tokens
                await asyncio.sleep(turn.tool_s)
            await asyncio.sleep(episode.outside_s / 2)
        except asyncio.CancelledError:
            self.lost += sampled
            raise
        finally:
            engine.sessions -= 1
            self._playing -= 1
            if self._empty and not self._playing:
                self._empty.set()
        return Sampled(versions, episode.tokens)

    async def settle(self, played: Sequence[tuple[str, list[Sampled]]]) -> Sequence[Settled]:
        await asyncio.sleep(SETTLE_S)
        for name, samples in played:
            del self._lake[name]  # in the order in which they settled
            self._lake[name] = samples
        return [self._settled(name, samples) for name, samples in played]

    def _settled(self, name: str, samples: Sequence[Sampled]) -> Settled:
        return Settled(name, name, len(samples), [one.versions for one in samples], spread=1.0)

    async def train(self, number: int, groups: Collection[str]) -> int | None:
        """All of a batch's fresh samples once; from the beginning where it was broken off."""
        if number == len(self._steps):
            self._steps.append(Step(number, frozenset(groups), None, finished=False))
        standing = await self.standing()
        fresh, stale = [], 0
        for name in self._steps[number].groups:
            samples = self._lake[name] or []
            whole = drops(self._settled(name, samples), self.terms, standing) is None
            for one in samples:
                if whole and standing.version - min(one.versions) <= self.terms.staleness:
                    fresh.append(one)
                else:
                    stale += one.tokens
        tokens = sum(one.tokens for one in fresh)
        seconds = tokens * self.shape.policy.train_s / self.split.train
        await asyncio.sleep(seconds)
        self._trained.busy_s += seconds * self.split.train
        self._trained.useful_s += seconds * self.split.train
        await asyncio.sleep(STORE_S)
        self.trained += tokens
        self.lost += stale
        self.ages.update(standing.version - min(one.versions) for one in fresh)
        self._steps[number] = replace(self._steps[number], version=self._version + 1)
        return self._version + 1

    async def serve(self, number: int, version: int) -> bool:
        if self.swap == "drain":
            self._open.clear()
            if self._playing:
                self._empty = asyncio.Event()
                await self._empty.wait()
                self._empty = None
        if self.one_by_one:
            for engine in self._engines:
                await self._deploy(engine, version)
        else:
            await asyncio.gather(*(self._deploy(engine, version) for engine in self._engines))
        self._version = version
        self._steps[number] = replace(self._steps[number], finished=True)
        self._open.set()
        return True

    async def _deploy(self, engine: Engine, version: int) -> None:
        if engine.version != version:
            if self.swap == "wait":
                await engine.wait(version, SWAP_S)
            elif self.swap == "abort":
                engine.abort(version, SWAP_S)
            else:
                engine.keep(version, SWAP_S)
        await asyncio.sleep(SWAP_S + PROVE_S)

    async def examine(self, number: int, version: int) -> None:
        """No evaluation: the step has ended."""
        now = asyncio.get_running_loop().time()
        for engine in self._engines:
            engine.look()
        self.marks.append(Mark(now, replace(self.sampled), replace(self._trained), self.lost))
