"""A world in memory for the loop: problems, an engine, a trainer and a lake, on a clock that jumps from event to event."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from tasks.loop.admission import Terms
from tasks.loop.loop import Loop
from tasks.loop.parts import Group, Settled, Standing, State, Step


class Jumping(asyncio.SelectorEventLoop):
    """An event loop that does not wait: where nothing is ready its time is that of the next timer."""

    now = 0.0

    def time(self):
        return self.now

    def _run_once(self):
        if not self._ready and self._scheduled:
            self.now = max(self.now, self._scheduled[0].when())
        super()._run_once()


@dataclass
class Lake:
    """What outlives a process. A group is [problem, what it settled as, or None]."""

    drawn: int = 0
    groups: dict = field(default_factory=dict)
    steps: dict = field(default_factory=dict)  # number -> [groups, version or None, finished]
    served: list = field(default_factory=lambda: [1])
    parents: dict = field(default_factory=dict)  # of versions that the loop made; others come from the number before
    examined: list = field(default_factory=list)  # (step, version)


@dataclass
class World:
    """The loop's parts. `outcome(problem, draw)` may be replaced: a sample's reward, or how it failed, None for env_error."""

    terms: Terms
    lake: Lake = field(default_factory=Lake)
    seed: int = 0
    problems: int = 100
    seconds: object = staticmethod(lambda draw: draw.lognormvariate(1.0, 1.0))
    outcome: object = staticmethod(lambda problem, draw: float(draw.random() < 0.5))
    train_s: float = 8.0
    most: Counter = field(default_factory=Counter)  # what was seen at most
    said: list = field(default_factory=list)

    def __post_init__(self):
        self.draw = random.Random(self.seed)
        self.left = []
        self.playing = 0

    def run(self, cancelled_after=None):
        """One process: to its end, or to the moment at which it is killed."""
        with asyncio.Runner(loop_factory=Jumping) as runner:
            return runner.run(self._process(cancelled_after))

    async def _process(self, cancelled_after):
        self.playing = 0
        self.loop = Loop(self.terms, self, self.said.append)
        if cancelled_after is None:
            return await self.loop.run()
        try:
            async with asyncio.timeout(cancelled_after):
                return await self.loop.run()
        except TimeoutError:
            return None

    async def recall(self):
        await asyncio.sleep(0.01)
        self.left = [name for name, (_, settled) in self.lake.groups.items() if settled is None]
        settled = [settled for _, settled in self.lake.groups.values() if settled is not None]
        steps = [
            Step(number, frozenset(groups), version, finished)
            for number, (groups, version, finished) in sorted(self.lake.steps.items())
        ]
        return State(settled, steps)

    async def standing(self):
        line = [self.lake.served[-1]]
        while line[-1]:
            line.append(self.lake.parents.get(line[-1], line[-1] - 1))
        return Standing(line[0], frozenset(line))

    async def begin(self, count, without):
        again, self.left = self.left[:count], self.left[count:]
        drawn = []
        while len(again) + len(drawn) < count:
            problem, name = f"p{self.lake.drawn % self.problems}", f"g{self.lake.drawn}"
            self.lake.drawn += 1
            if problem not in without:
                self.lake.groups[name] = [problem, None]
                drawn.append(name)
        await asyncio.sleep(0.01)
        self._look(len(again) + len(drawn))
        return [Group(name, self.lake.groups[name][0]) for name in again + drawn]

    def _look(self, more):
        """Admission holds at every beginning, counted from the lake and not from the loop's book."""
        self.playing += more
        consumed = set().union(*(groups for groups, _, _ in self.lake.steps.values()))
        finished = sum(done for _, _, done in self.lake.steps.values())
        standing = self.lake.served[-1]
        waiting = sum(
            settled is not None and name not in consumed and self._counts(settled, standing)
            for name, (_, settled) in self.lake.groups.items()
        )
        open_ = self.loop.book.open() is not None
        over = self.playing + waiting - (self.terms.staleness + 1) * self.terms.batch
        unwritten = self.terms.batch if open_ and len(self.lake.steps) == finished else 0  # taken, not yet in the lake
        self.most["beyond admission"] = max(self.most["beyond admission"], over - unwritten)
        self.most["in flight"] = max(self.most["in flight"], self.playing)

    def _counts(self, settled, version):
        fresh = [one for one in settled.scored if version - min(one) <= self.terms.staleness]
        return len(fresh) >= self.terms.least

    async def play(self, groups, ended):
        async with asyncio.TaskGroup() as tasks:
            for group in groups:
                tasks.create_task(self._group(group, ended))

    async def _group(self, group, ended):
        samples = await asyncio.gather(*(self._sample(group.problem_id) for _ in range(self.terms.samples)))
        ended((group, samples))

    async def _sample(self, problem):
        first = self.lake.served[-1]
        reward = self.outcome(problem, self.draw)
        await asyncio.sleep(self.seconds(self.draw))
        last = self.lake.served[-1]
        return frozenset(range(min(first, last), max(first, last) + 1)), reward

    async def settle(self, played):
        await asyncio.sleep(0.05)
        made = []
        for group, samples in played:
            scored = [(versions, reward) for versions, reward in samples if isinstance(reward, float)]
            rewards = [reward for _, reward in scored]
            settled = Settled(
                group.group_id,
                group.problem_id,
                len(samples),
                [versions for versions, _ in scored],
                max(rewards) - min(rewards) if rewards else 0.0,
                Counter(reward or "env_error" for _, reward in samples if not isinstance(reward, float)),
            )
            assert self.lake.groups[group.group_id][1] is None, "a group settled twice"
            self.lake.groups[group.group_id][1] = settled
            made.append(settled)
            self.playing -= 1
        return made

    async def train(self, number, groups):
        await asyncio.sleep(0.1)
        if number not in self.lake.steps:
            assert number == len(self.lake.steps), "a step was skipped"
            consumed = set().union(*(held for held, _, _ in self.lake.steps.values()))
            assert not consumed & set(groups), "a group is in two batches"
            self.lake.steps[number] = [set(groups), None, False]
        step = self.lake.steps[number]
        assert step[0] == set(groups), "a step that was broken off went on with another batch"
        settled = [self.lake.groups[name][1] for name in groups]
        ages = [
            self.lake.served[-1] - min(one)
            for group in settled
            for one in group.scored
            if self.lake.served[-1] - min(one) <= self.terms.staleness  # as the selection does
        ]
        self.most["age"] = max(self.most["age"], *ages) if ages else self.most["age"]
        if not any(group.spread for group in settled):
            step[2] = True
            return None
        parent = self.lake.served[-1]
        await asyncio.sleep(self.train_s)
        if step[1] is None:
            step[1] = max(*self.lake.served, *self.lake.parents, 1) + 1
            self.lake.parents[step[1]] = parent
        return step[1]

    async def serve(self, number, version):
        await asyncio.sleep(0.5)
        if self.lake.served[-1] not in (version, self.lake.parents[version]):
            self.lake.steps[number][2] = True
            return False
        if self.lake.served[-1] != version:
            self.lake.served.append(version)
        await asyncio.sleep(0.2)
        self.lake.steps[number][2] = True
        return True

    async def examine(self, number, version):
        self.lake.examined.append((number, version))
        await asyncio.sleep(0.3)


@pytest.fixture
def world():
    """Makes a world; terms are small unless they are given."""

    def make(**values):
        told = {name: values.pop(name) for name in list(values) if name in Terms.__dataclass_fields__}
        return World(Terms(**{"batch": 4, "steps": 5, "samples": 4} | told), **values)

    return make
