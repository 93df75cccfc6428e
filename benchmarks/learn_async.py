"""The price of asynchrony in miniature: old rollouts, with the naive and with the decoupled objective.

A recurrent policy of some 27,000 parameters learns to say four digits in reverse, rewarded by the share of digits that are
right. Each step trains on samples of the weights of `staleness` steps ago. Naive is PPO's clip around the sampling policy, as
if it were the current one; decoupled clips around the weights at the start of the step and weighs by what lies between
them and the sampling ones (Hilton et al., arXiv 2110.00641; AReaL, 2505.24298). The loss is the trainer's own.
"""

from collections import deque
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

DIGITS, LENGTH, WIDTH = 10, 4, 64
STALENESS = (0, 1, 4)
GROUP = 8


@dataclass(frozen=True)
class Setting:
    """Sizes of one run."""

    steps: int = 300
    prompts: int = 32
    passes: int = 4  # optimiser steps on each batch
    learning_rate: float = 4e-3


class Policy(nn.Module):
    """Reads the prompt with one GRU cell and writes with another."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(DIGITS + 1, WIDTH)
        self.cell = nn.GRUCell(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, DIGITS)

    def read(self, prompts: Tensor) -> Tensor:
        state = torch.zeros(len(prompts), WIDTH)
        for i in range(LENGTH):
            state = self.cell(self.embed(prompts[:, i]), state)
        return state

    def sample(self, prompts: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Answers and their log-probs, both [prompts, LENGTH]."""
        state, said = self.read(prompts), torch.full((len(prompts),), DIGITS)
        tokens, logprobs = [], []
        for _ in range(LENGTH):
            state = self.cell(self.embed(said), state)
            every = self.head(state).log_softmax(-1)
            said = torch.multinomial(every.exp(), 1, generator=generator)[:, 0]
            tokens.append(said)
            logprobs.append(every.gather(1, said[:, None])[:, 0])
        return torch.stack(tokens, 1), torch.stack(logprobs, 1)

    def logprobs(self, prompts: Tensor, answers: Tensor) -> Tensor:
        state, said = self.read(prompts), torch.full((len(prompts),), DIGITS)
        found = []
        for i in range(LENGTH):
            state = self.cell(self.embed(said), state)
            said = answers[:, i]
            found.append(self.head(state).log_softmax(-1).gather(1, said[:, None])[:, 0])
        return torch.stack(found, 1)


def learn(staleness: int, *, decoupled: bool, seed: int, setting: Setting) -> list[float]:
    """The mean reward of fresh samples of the current weights, step by step."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    policy = Policy()
    adam = torch.optim.Adam(policy.parameters(), lr=setting.learning_rate)
    past: deque[Policy] = deque(maxlen=staleness + 1)
    options = Grpo(aggregation="token", clip_high=0.28)
    curve = []
    for _ in range(setting.steps):
        past.append(deepcopy(policy))
        prompts = torch.randint(DIGITS, (setting.prompts, LENGTH), generator=generator)
        prompts = prompts.repeat_interleave(GROUP, 0)
        with torch.no_grad():
            answers, behaviour = past[0].sample(prompts, generator)
            reward = (answers == prompts.flip(1)).float().mean(1)
            fresh, _ = policy.sample(prompts, generator)
            curve.append((fresh == prompts.flip(1)).float().mean().item())
            grouped = reward.view(-1, GROUP)
            advantage = ((grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-4)).view(-1, 1)
            proximal = policy.logprobs(prompts, answers) if decoupled else behaviour
            importance, _ = correct(proximal.flatten(), behaviour.flatten(), Truncate())
        advantages = advantage.expand(-1, LENGTH)
        for _ in range(setting.passes):
            inputs = LossInputs(
                policy.logprobs(prompts, answers).flatten(),
                proximal.flatten(),
                behaviour.flatten(),
                advantages.flatten(),
                sequences=torch.arange(len(answers)).repeat_interleave(LENGTH),
                weights=torch.ones(answers.numel()),
                importance=importance,
            )
            loss = grpo(inputs, options).total / answers.numel()
            adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            adam.step()
    return curve


def measure(*, quick: bool) -> dict[str, Any]:
    """Reward of the last tenth of the steps, mean over seeds and its standard error, by objective and staleness."""
    setting = Setting(steps=40) if quick else Setting()
    seeds = range(1 if quick else 3)
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    for decoupled, name in ((False, "naive"), (True, "decoupled")):
        found[name] = {}
        for staleness in STALENESS:
            say(f"asynchrony: {name}, rollouts {staleness} steps old")
            curves = [learn(staleness, decoupled=decoupled, seed=seed, setting=setting) for seed in seeds]
            late = [fmean(curve[-max(1, len(curve) // 10) :]) for curve in curves]
            error = stdev(late) / len(late) ** 0.5 if len(late) > 1 else None
            found[name][str(staleness)] = {"reward": round(fmean(late), 4), "error": error and round(error, 4)}
    return found
