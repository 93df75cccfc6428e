"""The asynchronous loop against taking turns, simulated and on the real stack: `lakeloop bench async`.

First the loop's own orchestration on a clock that jumps, with simulated devices (`async_devices`), over workloads
(`async_shapes`). Both sides have the same devices: taking turns, all of them sample and then all of them train, without any
cost for changing over; asynchronous, they are split, and the fastest split is searched for each bound. Compared are the
seconds per step without the first and last ones, where the pipeline fills and empties. Then, on a stack of its own with the
real engine, what a swap of weights, a release and the bookkeeping of an episode take (`async_stack`).
"""

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

from benchmarks import async_swap
from benchmarks.async_shapes import SHAPES, Shape
from benchmarks.async_sim import Run, best, recover, run, shared, world
from benchmarks.async_world import Swap
from benchmarks.report import say, tell

BOUNDS = (1, 2, 4, 8)
PUBLISHED = {"1.5B": 2.77, "7B": 2.27}  # AReaL over its own synchronous mode, math (arXiv 2505.24298, table 1)
AT = 4  # the bound at which swaps and kills are compared
OTHER_SWAPS: tuple[Swap, ...] = ("wait", "abort", "drain")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it works, not how fast it is")
    parser.add_argument("--part", choices=("simulated", "stack"), help="one of the two parts alone")
    given = parser.parse_args()
    found: dict[str, Any] = {}
    if given.part != "stack":
        found |= simulated(quick=given.quick)
    if given.part != "simulated":
        from benchmarks import learn  # noqa: PLC0415 - with torch

        found |= async_swap.measure(quick=given.quick)
        with learn.stack() as settings:
            from benchmarks import async_stack  # noqa: PLC0415 - Prefect reads the environment, which points at the stack by now

            found |= async_stack.measure(settings, quick=given.quick)
    tell(found)


def simulated(*, quick: bool) -> dict[str, Any]:
    """Keys first, shapes second; a process per core."""
    names = [shape.name for shape in SHAPES]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        by_shape = dict(zip(names, pool.map(one, names, [quick] * len(names)), strict=True))
    keys = next(iter(by_shape.values()))
    return {"published": PUBLISHED, **{key: {name: told[key] for name, told in by_shape.items()} for key in keys}}


def one(name: str, quick: bool) -> dict[str, Any]:
    """All that is measured of a workload."""
    shape = next(shape for shape in SHAPES if shape.name == name)
    steps = 8
    if quick:
        shape, steps = replace(shape, devices=4, batch=shape.batch * 4 // shape.devices), 2
    turns = run(world(shape, 0, shared(shape), steps + 2))
    say(f"{shape.name}: a step takes {turns.step_s:.0f} s in turns")
    runs: dict[int, Run] = {}
    share = turns.sampled.useful_s / (turns.sampled.useful_s + turns.trained.useful_s)
    split = min(shape.devices - 1, max(1, round(share * shape.devices)))
    for bound in (1, AT) if quick else BOUNDS:
        runs[bound] = best(shape, bound, steps + 2 * (bound + 1), split)
        split = runs[bound].split.sample
        say(f"{shape.name}: {turns.step_s / runs[bound].step_s:.2f} times as fast at a staleness of {bound}")
    here = runs[AT]
    length = steps + 2 * (AT + 1)
    others = {swap: run(world(shape, AT, here.split, length, swap=swap)) for swap in OTHER_SWAPS}
    rolled = run(world(shape, AT, here.split, length, one_by_one=True))
    kills = {bound: recover(shape, bound, _split(bound, shape, runs), length, kills=5, seed=1) for bound in (0, AT)}
    return {
        "speedup": {str(bound): round(turns.step_s / found.step_s, 2) for bound, found in runs.items()},
        "token_speedup": {
            str(bound): round(found.trained_per_s / turns.trained_per_s, 2) for bound, found in runs.items()
        },
        "most_speedup": round(1 / (1 - turns.bubble), 2),
        "step_s": {"sync": round(turns.step_s, 1)} | {str(bound): round(one.step_s, 1) for bound, one in runs.items()},
        "sampling_devices": {str(bound): f"{one.split.sample} of {shape.devices}" for bound, one in runs.items()},
        "bubble_fraction": {name: round(one.bubble, 3) for name, one in _named(turns, runs)},
        "idle_fraction": {name: round(one.idle, 3) for name, one in _named(turns, runs)},
        "staleness": {str(bound): _shares(one.ages) for bound, one in runs.items()},
        "max_staleness": {str(bound): max(one.ages) for bound, one in runs.items()},
        "dropped_share": {str(bound): round(one.dropped / one.sampled.tokens, 4) for bound, one in runs.items()},
        "inflight_gain": {swap: round(other.step_s / here.step_s, 3) for swap, other in others.items()},
        "one_by_one": round(rolled.step_s / here.step_s, 3),
        "recovery_cost": {
            str(bound): {
                "extra_s": round(cost.extra_s, 1),
                "steps": round(cost.steps, 2),
                "batches_of_tokens": round(cost.tokens, 2),
            }
            for bound, cost in kills.items()
        },
    }


def _split(bound: int, shape: Shape, runs: dict[int, Run]) -> Any:
    return runs[bound].split if bound else shared(shape)


def _named(turns: Run, runs: dict[int, Run]) -> list[tuple[str, Run]]:
    return [("sync", turns), *((str(bound), found) for bound, found in runs.items())]


def _shares(ages: dict[int, int]) -> dict[str, float]:
    """Of the samples that were trained on, by age in versions."""
    return {str(age): round(count / sum(ages.values()), 4) for age, count in ages.items()}


if __name__ == "__main__":
    main()
