"""Workloads for the simulated loop: what an episode samples, reads and waits for.

`math` is AReaL's setting (arXiv 2505.24298, table 3), an eighth of it: 16 answers per prompt of up to 27,648 tokens, 64
sequences per device in a batch; `math-wide` spreads the same over four times the devices, 16 per device, as its scaling up to 512
does (figure 4). `math-7b` is its larger one, with 43 per device. That answers are lognormal with a tail that is
cut off, the longest many times the median, is what systems papers report (RollPacker, arXiv 2509.21009). `swe` is an agent in
a repository: dozens of turns, up to 100, in 40,000 tokens of context (SkyRL-Agent, arXiv 2511.16108; Golubev et al.,
2508.03501). `search` and `repair` are episodes of a quickstart's lake, as recorded; `async_recorded.json` says which.
`constant` has no tail at all. Medians and widths are assumptions where no number is published.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import log
from pathlib import Path
from typing import Any

from benchmarks.async_devices import LARGE, SMALL, Policy

RECORDED = Path(__file__).with_name("async_recorded.json")


@dataclass(frozen=True)
class Turn:
    """One model call, and what its tools take."""

    prompt: int  # tokens that the call before did not see
    tokens: int  # sampled
    tool_s: float = 0.0


@dataclass(frozen=True)
class Episode:
    turns: Sequence[Turn]
    outside_s: float = 0.0  # starting the box before, and grading after

    @property
    def tokens(self) -> int:
        return sum(turn.tokens for turn in self.turns)


@dataclass(frozen=True)
class Shape:
    """A workload and the devices it runs on."""

    name: str
    policy: Policy
    devices: int
    batch: int  # groups per step
    samples: int
    draw: Callable[[random.Random], Episode]


def _lognormal(draw: random.Random, median: float, sigma: float, most: float) -> float:
    return min(most, draw.lognormvariate(log(median), sigma))


def _math(draw: random.Random) -> Episode:
    return Episode([Turn(200, max(1, round(_lognormal(draw, 5000, 1.0, 27_648))))])


def _constant(draw: random.Random) -> Episode:
    return Episode([Turn(200, 8000)])


def _swe(draw: random.Random) -> Episode:
    turns, context = [], 0
    for number in range(max(2, round(_lognormal(draw, 25, 0.6, 100)))):
        prompt = 3000 if number == 0 else round(_lognormal(draw, 400, 1.0, 8000))
        tokens = max(1, round(_lognormal(draw, 150, 0.9, 4096)))
        context += prompt + tokens
        if context > 40_000:
            break
        turns.append(Turn(prompt, tokens, _lognormal(draw, 1.0, 1.5, 120)))
    return Episode(turns, outside_s=_lognormal(draw, 20, 0.8, 300))


def _as_recorded(kind: str) -> Callable[[random.Random], Episode]:
    def draw(source: random.Random) -> Episode:
        outside_s, *turns = source.choice(_recorded()[kind])
        return Episode([Turn(int(prompt), int(tokens), tool_s) for prompt, tokens, tool_s in turns], outside_s)

    return draw


@cache
def _recorded() -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = json.loads(RECORDED.read_text())["episodes"]
    return found


SHAPES = (
    Shape("math", SMALL, devices=16, batch=64, samples=16, draw=_math),
    Shape("math-wide", SMALL, devices=16, batch=16, samples=16, draw=_math),
    Shape("math-7b", LARGE, devices=18, batch=48, samples=16, draw=_math),
    Shape("swe", LARGE, devices=8, batch=32, samples=8, draw=_swe),
    Shape("search", SMALL, devices=8, batch=32, samples=8, draw=_as_recorded("search")),
    Shape("repair", SMALL, devices=8, batch=32, samples=8, draw=_as_recorded("swe")),
    Shape("constant", SMALL, devices=8, batch=32, samples=16, draw=_constant),
)
