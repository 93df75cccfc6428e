"""Boxes against mini-swe-agent's Docker environment and a SWE-ReX session: `lakeloop bench sandbox`.

The same short command, sides taking turns on this machine: a box of each backend, mini-swe-agent's `docker exec` on the same
image, and a bash session of SWE-ReX's local runtime, which isolates nothing. Then what the machine carries: commands per second
over several boxes, gradings per minute by number of workers, problems built per hour; and what is left after many boxes.
"""

import asyncio
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks import peers
from benchmarks.report import arguments, middle, percentile, say, tell
from sandboxes import backends
from sandboxes.backends import cgroup, images
from sandboxes.backends.base import Backend, Box, BoxSpec
from sandboxes.backends.docker import CONTROLLER_LABEL, docker_client
from sandboxes.backends.pool import Pool, Starting
from sandboxes.problems.kinds import KINDS
from sandboxes.problems.library import load, prepare
from sandboxes.problems.swe.build import Builder, Order
from sandboxes.problems.swe.packages import PACKAGES

NAMES = ("docker", "bubblewrap")
PEERS = {"mini-swe-agent": ("mini-swe-agent==2.4.6",), "swe-rex": ("swe-rex==1.4.0",)}
COMMAND = ("bash", "-c", "echo hello")
DRIVER = Path(__file__).with_name("sandbox_peers.py")
THINKING_S = 0.3  # of a model, between two commands
PACKAGE = "parse"  # what problems per hour are built of


def main() -> None:
    given = arguments(__doc__)
    held = {name: backends.prepare(name, progress=say) for name in NAMES}
    found = asyncio.run(measure(held, quick=given.quick))
    tell(found)


async def measure(held: Mapping[str, Starting], *, quick: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, backend in held.items():
        say(f"{name}: start, exec, close")
        found[name] = await one_by_one(backend, boxes=8 if quick else 40, commands=20 if quick else 50)
    say("the same command, in turns with mini-swe-agent and SWE-ReX")
    found |= await against_peers(held, rounds=2 if quick else 8, commands=10 if quick else 40)
    say("episodes with and without a warm pool")
    size = {"episodes": 8, "rounds": 1} if quick else {"episodes": 24, "rounds": 3}
    found["pool_speedup"] = {name: await pool_speedup(one, **size) for name, one in held.items()}
    say("commands per second over as many boxes as four per core")
    found["commands_per_s"] = round(await commands_per_s(held["docker"], seconds=3 if quick else 20), 1)
    say("gradings")
    found["gradings_per_min"] = await gradings_per_min(held["docker"], each=4 if quick else 40)
    say("problems built")
    found["problems_per_hour"] = await problems_per_hour(held["docker"], 2 if quick else 20)
    with tempfile.TemporaryDirectory(prefix="lakeloop-bench-") as folder:
        elsewhere, tempfile.tempdir = tempfile.tempdir, folder  # what is made here from now on is seen
        try:
            found["leaked"] = await leaked(held, Path(folder), boxes=40 if quick else 1000)
        finally:
            tempfile.tempdir = elsewhere
    return found


async def one_by_one(backend: Backend, *, boxes: int, commands: int) -> dict[str, Any]:
    """Milliseconds of each call, one box after the other."""
    took: dict[str, list[float]] = {"start_ms": [], "exec_ms": [], "close_ms": []}
    for _ in range(boxes):
        with timed(took["start_ms"]):
            box = await backend.start(BoxSpec(files={"a.py": b"ONE = 1\n"}))
        for _ in range(commands):
            with timed(took["exec_ms"]):
                await run(box)
        with timed(took["close_ms"]):
            await box.close()
    return {
        name: {"p50": round(percentile(values, 0.5), 2), "p95": round(percentile(values, 0.95), 2)}
        for name, values in took.items()
    }


async def run(box: Box) -> None:
    done = await box.exec(COMMAND, timeout_s=60)
    if done.stdout != b"hello\n":
        raise RuntimeError(f"the command said {done}")


@contextmanager
def timed(into: list[float]) -> Iterator[None]:
    began = time.perf_counter()
    yield
    into.append((time.perf_counter() - began) * 1000)


async def against_peers(held: Mapping[str, Backend], *, rounds: int, commands: int) -> dict[str, Any]:
    """How many times longer a command takes a peer than a Docker box; the median over paired rounds."""
    box = await held["docker"].start(BoxSpec())
    ours: list[float] = []
    theirs: dict[str, list[float]] = {name: [] for name in PEERS}
    try:
        with Peer("mini-swe-agent") as mini, Peer("swe-rex") as rex:
            for peer in (mini, rex):
                peer.commands(2)  # warm-up
            for _ in range(rounds):
                took: list[float] = []
                for _ in range(commands):
                    with timed(took):
                        await run(box)
                ours.append(percentile(took, 0.5))
                for peer in (mini, rex):
                    theirs[peer.name].append(percentile(peer.commands(commands), 0.5))
    finally:
        await box.close()
    ratio = {name: middle([a / b for a, b in zip(values, ours, strict=True)]) for name, values in theirs.items()}
    for name, values in theirs.items():
        say(f"{name}: {middle(values):.1f} ms per command, a Docker box {middle(ours):.1f} ms")
    return {"vs_mini_swe_agent": round(ratio["mini-swe-agent"], 1), "vs_swe_rex": round(ratio["swe-rex"], 1)}


class Peer:
    """A peer that runs commands in an environment of its own."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> "Peer":
        python = peers.environment(self.name, PEERS[self.name])
        command = [str(python), str(DRIVER), self.name, images.STANDARD.name]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"MSWEA_SILENT_STARTUP": "1"},
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()  # it cleans up and ends
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def commands(self, number: int) -> list[float]:
        """Run that many; milliseconds of each. RuntimeError where the peer ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("["):
                return [float(ms) for ms in json.loads(line)]
        raise RuntimeError(f"{self.name} ended with status {self._process.wait()}")


async def pool_speedup(backend: Starting, *, episodes: int, rounds: int) -> float:
    """How many times faster episodes are with a warm pool: a model that thinks, a box, three commands, two at a time per core."""

    async def played(boxes: Backend) -> float:
        room = asyncio.Semaphore(2 * _cores())

        async def episode() -> None:
            async with room:
                await asyncio.sleep(THINKING_S)
                box = await boxes.start(BoxSpec())
                for _ in range(3):
                    await run(box)
                    await asyncio.sleep(THINKING_S)
                await box.close()

        began = time.perf_counter()
        await asyncio.gather(*(episode() for _ in range(episodes)))
        return time.perf_counter() - began

    ratios = []
    for _ in range(rounds):
        without = await played(backend)
        async with Pool(backend, size=_cores()) as pool:
            ratios.append(without / await played(pool))
    return round(middle(ratios), 2)


async def commands_per_s(backend: Backend, *, seconds: float) -> float:
    """Short commands per second, over four boxes per core at a time."""
    boxes = await asyncio.gather(*(backend.start(BoxSpec()) for _ in range(4 * _cores())))
    done = 0

    async def busy(box: Box, until: float) -> None:
        nonlocal done
        while time.perf_counter() < until:
            await run(box)
            done += 1

    try:
        began = time.perf_counter()
        await asyncio.gather(*(busy(box, began + seconds) for box in boxes))
        return done / (time.perf_counter() - began)
    finally:
        await asyncio.gather(*(box.close() for box in boxes))


async def gradings_per_min(backend: Backend, *, each: int) -> dict[str, float]:
    """Gradings of the oracle's patch per minute, by the number of workers, up to one per core."""
    kind = KINDS["swe"]
    problems = [problem for problem in load("swe") if problem.split == "train"][:each]
    await asyncio.to_thread(prepare, problems)
    found = {}
    for workers in range(1, _cores() + 1):
        queue = iter(
            problem.model_copy(
                update={"problem_id": f"{problem.problem_id}-{workers}"}
            )  # graded before is not run again
            for problem in problems
        )

        async def worker(queue: Iterator[Any] = queue) -> None:
            for problem in queue:
                world = await kind.open(problem, backend)
                try:
                    for call in kind.expert(problem):
                        await world.call(call.name, call.arguments)
                    if not kind.solved(await world.grade()):
                        raise RuntimeError(f"the oracle does not solve {problem.problem_id}")
                finally:
                    await world.close()

        began = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(workers)))
        found[str(workers)] = round(60 * len(problems) / (time.perf_counter() - began), 1)
    return found


async def problems_per_hour(backend: Backend, number: int) -> float:
    """Problems that a build makes of one package, rejected candidates and the validation of the package itself included."""
    with tempfile.TemporaryDirectory(prefix="lakeloop-bench-") as folder:
        builder = Builder(Path(folder), backend)
        began = time.perf_counter()
        order = Order(singles=number, combined=0, versions=False, seed=0)
        made = [problem async for problem in builder.package(PACKAGES[PACKAGE], order)]
        say(f"{builder.report.kept} of {builder.report.tried} candidates kept")
        return round(3600 * len(made) / (time.perf_counter() - began), 1)


async def leaked(held: Mapping[str, Backend], room: Path, *, boxes: int) -> int:
    """Containers, control groups, processes and temporary folders that are left of so many boxes, half of each backend."""
    before = traces(room)
    for name, backend in held.items():
        say(f"leak check: {boxes // 2} boxes of {name}")
        queue = iter(range(boxes // 2))

        async def worker(backend: Backend = backend, queue: Iterator[int] = queue) -> None:
            for number in queue:
                box = await backend.start(BoxSpec(files={"a": b"1"}))
                await box.exec(["sh", "-c", "sleep 60 & setsid sleep 60 & echo > /tmp/x"], timeout_s=60)
                if number % 10:  # the others are forgotten, as by a caller who was cancelled
                    await box.close()
                else:
                    task = asyncio.ensure_future(box.exec(["sleep", "60"], timeout_s=60))
                    await asyncio.sleep(0.01)
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)

        await asyncio.gather(*(worker() for _ in range(2 * _cores())))
    await asyncio.sleep(1)  # the engine removes what ended a moment after its end
    left = {kind: sorted(now - before[kind]) for kind, now in traces(room).items()}
    for kind, names in left.items():
        if names:
            say(f"left behind: {len(names)} {kind}: {', '.join(names[:5])}")
    return sum(map(len, left.values()))


def traces(room: Path) -> dict[str, set[str]]:
    """What this process has on the machine, by kind; `room` is where it makes temporary folders."""
    client = docker_client()
    containers = client.containers.list(all=True, ignore_removed=True) if client is not None else []
    own = f":{os.getpid()}"
    return {
        "containers": {one.name for one in containers if one.labels.get(CONTROLLER_LABEL, "").endswith(own)},
        "control groups": {
            str(group) for parent in cgroup.parents() for group in parent.glob(f"*-{os.getpid()}-*") if group.is_dir()
        },
        "processes": {str(one.pid) for one in psutil.Process().children(recursive=True)},
        "folders": {path.name for path in room.iterdir()},
    }


def _cores() -> int:
    return len(os.sched_getaffinity(0))


if __name__ == "__main__":
    main()
