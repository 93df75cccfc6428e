"""Experiments with the simulated loop: the loop's own code on a clock that jumps."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.async_clock import Jumping
from benchmarks.async_devices import Work
from benchmarks.async_shapes import Shape
from benchmarks.async_world import Split, Swap, World
from tasks.loop.admission import Terms
from tasks.loop.loop import Loop

FOREVER_S = 1e9
RESTART_S = 20.0  # from a kill to a process that runs again


@dataclass(frozen=True)
class Run:
    """Steps of a loop without its first and last ones, where the pipeline fills and empties."""

    split: Split
    steps: int
    seconds: float
    sampled: Work
    trained: Work
    dropped: int
    ages: dict[int, int]

    @property
    def step_s(self) -> float:
        return self.seconds / self.steps

    @property
    def trained_per_s(self) -> float:
        """Trained tokens per second, in seconds of one device's training."""
        return self.trained.useful_s / self.seconds

    @property
    def idle(self) -> float:
        """Share of device time in which a device does nothing at all."""
        return 1 - (self.sampled.busy_s + self.trained.busy_s) / (self.split.devices * self.seconds)

    @property
    def bubble(self) -> float:
        """Share of device time that the same tokens in full batches would not have taken."""
        return 1 - (self.sampled.useful_s + self.trained.useful_s) / (self.split.devices * self.seconds)


class TooOld(AssertionError):
    """A sample was trained on that is older than the bound."""


def world(
    shape: Shape,
    staleness: int,
    split: Split,
    steps: int,
    *,
    swap: Swap = "keep",
    one_by_one: bool = False,
    seed: int = 0,
) -> World:
    """Staleness alone bounds what is begun; as many episodes play at a time as the engines have slots."""
    terms = Terms(
        batch=shape.batch,
        steps=steps,
        samples=shape.samples,
        staleness=staleness,
        deadline_s=FOREVER_S,
        group_deadline_s=FOREVER_S,
        starved_s=2 * FOREVER_S,
    )
    return World(shape, terms, split, swap=swap, one_by_one=one_by_one, seed=seed)


def shared(shape: Shape) -> Split:
    """All devices sample, then all train."""
    return Split(shape.devices, shape.devices, shared=True)


def run(made: World) -> Run:
    """A loop from its beginning to its end. TooOld where a sample was older than its bound."""
    with asyncio.Runner(loop_factory=Jumping) as runner:
        runner.run(Loop(made.terms, made).run())
    return told(made)


def told(made: World) -> Run:
    """Of the steps in the middle."""
    bound = made.terms.staleness
    if made.ages and max(made.ages) > bound:
        raise TooOld(f"{made.shape.name}: trained on a sample {max(made.ages)} versions old, the bound is {bound}")
    first, last = made.marks[bound], made.marks[-2 - bound]
    return Run(
        made.split,
        len(made.marks) - 2 - 2 * bound,
        last.at - first.at,
        last.sampled.less(first.sampled),
        last.trained.less(first.trained),
        last.dropped - first.dropped,
        dict(sorted(made.ages.items())),
    )


def best(shape: Shape, staleness: int, steps: int, start: int) -> Run:
    """The fastest split of the devices: from `start` that sample, as long as another one is better."""
    tried: dict[int, Run] = {}

    def at(sample: int) -> Run:
        if sample not in tried:
            tried[sample] = run(world(shape, staleness, Split(sample, shape.devices - sample), steps))
        return tried[sample]

    here = start
    while True:
        near = [here + way for way in (0, -1, 1) if 0 < here + way < shape.devices]
        better = min(near, key=lambda sample: at(sample).step_s)
        if better == here:
            return at(here)
        here = better


@dataclass(frozen=True)
class Recovery:
    """What kills cost beside the same run without."""

    kills: int
    extra_s: float  # per kill
    steps: float  # that, in steps of the undisturbed run
    tokens: float  # sampled again or lost, as a share of a batch, per kill


def recover(shape: Shape, staleness: int, split: Split, steps: int, *, kills: int, seed: int = 0) -> Recovery:
    """Kill the loop at random moments and start it again from what the lake holds."""
    calm, hurt = (world(shape, staleness, split, steps, seed=seed) for _ in range(2))
    with asyncio.Runner(loop_factory=Jumping) as runner:
        runner.run(Loop(calm.terms, calm).run())
    took = calm.marks[-1].at
    draw = random.Random(seed)
    moments = sorted(draw.uniform(0.05, 0.95) * took for _ in range(kills))
    with asyncio.Runner(loop_factory=Jumping) as runner:
        runner.run(_killed(hurt, moments))
    told(hurt)
    extra = (hurt.marks[-1].at - took) / kills
    wasted = (hurt.lost + hurt.sampled.again - calm.lost - calm.sampled.again) / kills
    return Recovery(kills, extra, extra / (took / steps), wasted / (calm.trained / steps))


async def _killed(made: World, moments: Sequence[float]) -> None:
    clock = asyncio.get_running_loop().time
    for moment in moments:
        process = asyncio.ensure_future(Loop(made.terms, made).run())
        done, _ = await asyncio.wait({process}, timeout=max(0.0, moment - clock()))
        if done:
            break
        process.cancel()
        await asyncio.gather(process, return_exceptions=True)
        await asyncio.sleep(RESTART_S)
    await Loop(made.terms, made).run()
