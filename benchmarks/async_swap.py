"""What a swap of weights takes beside reading them: engines alone, without a load and under one."""

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.gateway import real_engine
from benchmarks.load import Talk, Target, drive
from benchmarks.report import middle, say
from lakehouse.home import home
from tasks.serving.engine import Engine
from tasks.serving.models import resolve

MODELS = ("tiny", "smollm2")
CLIENTS = 8
CHUNK = 1 << 22  # bytes
ENDLESS = 1_000_000  # calls


def measure(*, quick: bool) -> dict[str, Any]:
    """By model: seconds that generation stands still, seconds to read the same files, and their ratios."""
    found: dict[str, dict[str, Any]] = {"swap_s": {}, "read_s": {}, "swap_vs_read": {}}
    for model in MODELS[:1] if quick else MODELS:
        with (
            tempfile.TemporaryDirectory(prefix="lakeloop-bench-") as folder,
            real_engine(Path(folder), model) as target,
        ):
            swap_s, read_s = asyncio.run(_both(target, resolve(model, home()), rounds=2 if quick else 8))
        found["swap_s"][model] = {name: round(seconds, 3) for name, seconds in swap_s.items()}
        found["read_s"][model] = {name: round(seconds, 4) for name, seconds in read_s.items()}
        found["swap_vs_read"][model] = {
            name: {read: round(swap_s[name] / seconds, 2) for read, seconds in read_s.items()} for name in swap_s
        }
    return found


async def _both(target: Target, folder: Path, *, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    swaps: dict[str, list[float]] = {"idle": [], "loaded": []}
    reads: dict[str, list[float]] = {"cold": [], "warm": []}
    await drive(target, Talk(8), clients=2, calls=4, tag="warm-up")
    for number in range(rounds):
        say(f"{target.model}: swap {number + 1} of {rounds}")
        for name in reads:
            reads[name].append(_read(folder, cold=name == "cold"))
        swaps["idle"].append(await _swap(target, folder, 2 * number))
        async with _loaded(target, f"swap {number}"):
            swaps["loaded"].append(await _swap(target, folder, 2 * number + 1))
    return {name: middle(found) for name, found in swaps.items()}, {
        name: middle(found) for name, found in reads.items()
    }


@asynccontextmanager
async def _loaded(target: Target, tag: str) -> AsyncIterator[None]:
    """Clients that ask without a pause, however short the answers are, until the block ends."""
    load = asyncio.create_task(drive(target, Talk(256), clients=CLIENTS, calls=ENDLESS, tag=tag))
    await asyncio.sleep(1.0)
    try:
        if load.done():
            load.result()
        yield
    finally:
        load.cancel()
        with suppress(asyncio.CancelledError):
            await load


async def _swap(target: Target, folder: Path, version: int) -> float:
    def swap() -> float:
        with Engine(target.url.removesuffix("/v1")) as engine:
            seconds = engine.reload(folder, version + 1)
            engine.label(version + 1)
            return seconds

    return await asyncio.to_thread(swap)


def _read(folder: Path, *, cold: bool) -> float:
    """Seconds to read all weights into memory; `cold`: after the system was told to forget them."""
    seconds = 0.0
    buffer = bytearray(CHUNK)
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb", buffering=0) as held:
            if cold:
                os.fsync(held.fileno())
                os.posix_fadvise(held.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            began = time.perf_counter()
            while held.readinto(buffer):
                pass
            seconds += time.perf_counter() - began
    return seconds
