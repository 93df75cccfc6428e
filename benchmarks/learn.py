"""What each objective learns on the quickstart's search task, and what old rollouts cost: `lakeloop bench learn`.

On a stack of its own, with the real engine and `tiny`: per seed one warm start on demonstrations and one collection of
rollouts from it. Every objective trains from those weights on those same rows, and all are evaluated on the same held-out
problems, so that differences are paired. Then the price of asynchrony on a smaller policy (`benchmarks/learn_async.py`).

With LAKELOOP_HOME set, the lake stays there, and what an interrupted benchmark has finished is not done again.
"""

import asyncio
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import learn_async
from benchmarks.processes import free_port
from benchmarks.report import arguments, say, tell
from tasks.stack import Settings, down
from tasks.stack.services import plan
from tasks.stack.starting import Start

WARM = "sft"  # what the other objectives start from
RESAMPLED = 10_000
NEEDED = (
    "engine",
    "prefect",
    "mlflow",
    "gateway",
)  # flows run in this process: no worker, and no watcher that redeploys
PATIENCE_S = 900.0


def main() -> None:
    given = arguments(__doc__)
    found: dict[str, Any] = {"asynchrony": learn_async.measure(quick=given.quick)}
    with stack() as settings:
        from benchmarks import learn_search  # noqa: PLC0415 - Prefect reads the environment, which points at the stack by now

        found |= summary(asyncio.run(learn_search.run(settings, quick=given.quick)))
    tell(found)


@contextmanager
def stack() -> Iterator[Settings]:
    """A stack with `tiny` on ports of its own, in LAKELOOP_HOME or a folder that goes away."""
    with tempfile.TemporaryDirectory(prefix="lakeloop-bench-") as folder:
        home = Path(os.environ.get("LAKELOOP_HOME", folder)).resolve()
        home.mkdir(parents=True, exist_ok=True)
        os.environ["LAKELOOP_HOME"] = str(home)
        settings = Settings() if (home / "stack.json").exists() else _own()
        os.environ.update(settings.environment())
        os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
        os.environ.setdefault(
            "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW", "ignore"
        )  # some tasks are called by themselves
        os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
        services = [replace(one, deadline_s=PATIENCE_S) for one in plan(settings) if one.name in NEEDED]
        Start(settings.home, services, lambda name, event, seconds: say(f"{name} {event}, {seconds:.0f} s")).run()
        settings.remember()
        try:
            yield settings
        finally:
            down(settings)


def _own() -> Settings:
    prefect, mlflow, engine, gateway = (free_port() for _ in range(4))
    return Settings(model="tiny", prefect_port=prefect, mlflow_port=mlflow, engine_port=engine, gateway_port=gateway)


def summary(seeds: Mapping[int, Mapping[str, Mapping[str, list[float]]]]) -> dict[str, Any]:
    """Success with its 95 % interval, and the difference to the warm start, paired by seed and problem."""
    rng = np.random.default_rng(0)
    told: dict[str, Any] = {"seeds": len(seeds), "success": {}, "gain_over_sft": {}}
    for name in next(iter(seeds.values()), {}):
        means = {seed: {p: float(np.mean(o)) for p, o in held[name].items()} for seed, held in seeds.items()}
        told["success"][name] = {
            **interval(rng, [np.array(list(one.values())) for one in means.values()]),
            "by_seed": {str(seed): round(float(np.mean(list(one.values()))), 4) for seed, one in means.items()},
        }
        if name != WARM:
            gains = []
            for held in seeds.values():
                both = sorted(held[WARM].keys() & held[name].keys())
                gains.append(np.array([np.mean(held[name][p]) - np.mean(held[WARM][p]) for p in both]))
            told["gain_over_sft"][name] = interval(rng, gains)
    return told


def interval(rng: np.random.Generator, seeds: list[np.ndarray]) -> dict[str, float]:
    """Mean and 95 % bootstrap interval: seeds are drawn, and problems within them."""
    if not seeds:
        return {}
    draws = np.empty(RESAMPLED)
    for i in range(RESAMPLED):
        drawn = [seeds[k] for k in rng.integers(len(seeds), size=len(seeds))]
        draws[i] = np.mean([one[rng.integers(len(one), size=len(one))].mean() for one in drawn])
    low, high = np.quantile(draws, [0.025, 0.975])
    return {
        "mean": round(float(np.mean([one.mean() for one in seeds])), 4),
        "low": round(low, 4),
        "high": round(high, 4),
    }


if __name__ == "__main__":
    main()
