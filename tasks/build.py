"""Build: the Prefect tasks that make problems out of a package, and put what was made where it is used."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from lakehouse.home import home
from lakehouse.records import Problem
from lakehouse.write import Writer
from sandboxes import backends
from sandboxes.problems.base import EnvironmentFailure
from sandboxes.problems.swe import shipped
from sandboxes.problems.swe.build import Builder, Order
from sandboxes.problems.swe.packages import PACKAGES
from tasks.progress import Progress
from tasks.retrying import infrastructure


def builder(folder: str | None, backend: str, *, fresh: bool) -> tuple[Builder, Path]:
    """A builder and its folder. It begins with the shipped problems, unless it shall begin with nothing."""
    out = Path(folder) if folder else home().root / "problems" / "swe"
    existing = () if fresh else shipped.load()
    return Builder(out, backends.prepare(backend), existing), out


def known(packages: Sequence[str] | None) -> list[str]:
    """The packages wanted, all where none is named. EnvironmentFailure names those that are not known."""
    strange = sorted(set(packages or ()) - set(PACKAGES))
    if strange:
        raise EnvironmentFailure(
            f"no package here is called {', '.join(strange)}; there are {', '.join(sorted(PACKAGES))}. "
            "sandboxes/problems/swe/packages.py says where each has its code and its tests"
        )
    return list(dict.fromkeys(packages or PACKAGES))


async def make_all(names: Sequence[str], builder: Builder, order: Order, out: Path, workers: int | None) -> None:
    """Problems of these packages, so many packages at a time (none given: one for each core), in the given order.

    What is there is written down whenever a package is done.
    """
    room, writing = asyncio.Semaphore(workers or len(os.sched_getaffinity(0))), asyncio.Lock()

    async def one(name: str) -> None:
        async with room:
            await make(name, builder, order)
        async with writing:
            await asyncio.to_thread(shipped.write, out, list(builder.problems))

    under_way = [asyncio.ensure_future(one(name)) for name in names]
    try:
        await asyncio.gather(*under_way)
    finally:  # where one failed, the others do not go on behind its back
        for other in under_way:
            other.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


@task(cache_policy=NO_CACHE, task_run_name="make {name}")
async def make(name: str, builder: Builder, order: Order) -> int:
    """Problems of one package; how many."""
    package = PACKAGES[name]
    progress = await Progress.begin(f"building {name}", builder.missing(package, order))
    made = 0
    async for _ in builder.package(package, order):
        made += 1
        await progress.advance()
    if progress.done < progress.total:  # there were no more candidates
        await progress.advance(progress.total - progress.done)
    return made


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=5, retry_condition_fn=infrastructure)
def put(problems: Sequence[Problem]) -> int:
    """Put problems into the lake, each edition once; how many are new."""
    return Writer().put_problems(problems).rows
