"""The price of asynchrony in miniature: old rollouts, with the naive and with the decoupled objective.

A policy of 8,000 parameters learns a secret permutation of 32 symbols: it answers eight at a time and is told only the
share that was right. Each step trains on answers of the weights of `staleness` steps ago. Naive is PPO's clip around the
sampling policy; decoupled clips around the weights at the start of the step and weighs a token by what lies between those and
the sampling ones, truncated (Hilton et al., arXiv 2110.00641; AReaL, 2505.24298). Loss and correction are the trainer's own.
"""

from collections import deque
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.report import say
from tasks.training.losses.base import LossInputs
from tasks.training.losses.correction import correct
from tasks.training.losses.grpo import grpo
from tasks.training.objectives import Grpo, Truncate

SYMBOLS, LENGTH, WIDTH = 32, 8, 64
STALENESS = (0, 1, 4, 8)
GROUP, PROMPTS = 8, 16
LEARNING_RATE = 1e-2
HIGH = 0.9  # a reward that counts as having learnt


@dataclass(frozen=True)
class Arm:
    """One way to train on old answers."""

    staleness: int
    decoupled: bool


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Embedding(SYMBOLS, WIDTH), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, SYMBOLS)
        )

    def every(self, prompts: Tensor) -> Tensor:
        """Log-probs of all symbols, [answers, LENGTH, SYMBOLS]."""
        found: Tensor = self.layers(prompts).log_softmax(-1)
        return found

    def logprobs(self, prompts: Tensor, answers: Tensor) -> Tensor:
        return self.every(prompts).gather(-1, answers[..., None])[..., 0]


def learn(arm: Arm, *, seed: int, steps: int) -> list[float]:
    """The expected reward of the current weights, before every step."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    policy = Policy()
    adam = torch.optim.Adam(policy.parameters(), lr=LEARNING_RATE)
    secret = torch.randperm(SYMBOLS, generator=generator)
    past: deque[Policy] = deque(maxlen=arm.staleness + 1)
    curve = []
    for _ in range(steps):
        past.append(deepcopy(policy))
        prompts = torch.randint(SYMBOLS, (PROMPTS, LENGTH), generator=generator).repeat_interleave(GROUP, 0)
        with torch.no_grad():
            every = past[0].every(prompts)
            answers = torch.multinomial(every.exp().flatten(0, 1), 1, generator=generator).view(prompts.shape)
            behaviour = every.gather(-1, answers[..., None])[..., 0]
            curve.append(policy.logprobs(prompts, secret[prompts]).exp().mean().item())
            advantages = _advantages((answers == secret[prompts]).float().mean(1))
            proximal = policy.logprobs(prompts, answers) if arm.decoupled else behaviour
        loss = _loss(policy.logprobs(prompts, answers), proximal, behaviour, advantages)
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        adam.step()
    return curve


def _advantages(rewards: Tensor) -> Tensor:
    """GRPO's, the same for all tokens of an answer: [answers, LENGTH]."""
    grouped = rewards.view(-1, GROUP)
    relative = (grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-4)
    return relative.view(-1, 1).expand(-1, LENGTH)


def _loss(logprobs: Tensor, proximal: Tensor, behaviour: Tensor, advantages: Tensor) -> Tensor:
    """The trainer's GRPO with its truncated correction, which is 1 where proximal is behaviour."""
    importance, _ = correct(proximal.flatten(), behaviour.flatten(), Truncate())
    inputs = LossInputs(
        logprobs=logprobs.flatten(),
        proximal=proximal.flatten(),
        behaviour=behaviour.flatten(),
        advantages=advantages.flatten(),
        sequences=torch.arange(len(logprobs)).repeat_interleave(LENGTH),
        weights=torch.ones(logprobs.numel()),
        importance=importance,
    )
    return grpo(inputs, Grpo(aggregation="token")).total / logprobs.numel()


def measure(*, quick: bool) -> dict[str, Any]:
    """Per objective and staleness: mean reward over the first quarter of the steps, over the last tenth, and steps to 0.9."""
    steps, seeds = (60, 1) if quick else (200, 5)
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    for decoupled, name in ((False, "naive"), (True, "decoupled")):
        found[name] = {}
        for staleness in STALENESS:
            curves = [learn(Arm(staleness, decoupled), seed=seed, steps=steps) for seed in range(seeds)]
            told: dict[str, Any] = {
                "early": _mean([fmean(curve[: steps // 4]) for curve in curves]),
                "late": _mean([fmean(curve[-steps // 10 :]) for curve in curves]),
                "steps_to_90": _mean([_reached(curve) for curve in curves]),
                "curve": [round(fmean(points), 3) for points in zip(*curves, strict=True)][:: _every(steps)],
                "every": _every(steps),
            }
            found[name][str(staleness)] = told
            say(
                f"asynchrony: {name}, {staleness} steps old: early {told['early']['mean']}, late {told['late']['mean']}"
            )
    return found


def _every(steps: int) -> int:
    """Of a curve about 40 points are told."""
    return max(1, steps // 40)


def _reached(curve: Sequence[float]) -> float:
    """The first step at 0.9; all of them where it never came."""
    return float(next((step for step, reward in enumerate(curve) if reward >= HIGH), len(curve)))


def _mean(values: Sequence[float]) -> dict[str, float | None]:
    """With its standard error over seeds."""
    error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
    return {"mean": round(fmean(values), 4), "error": None if error is None else round(error, 4)}
