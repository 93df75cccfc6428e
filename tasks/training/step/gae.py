"""Generalised advantage estimation from a value head's values and rewards by token. Imports no torch."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from tasks.training.data.mapped import ByRow, Row
from tasks.training.objectives import Ppo


def estimate(
    values: ByRow, rewards: ByRow, rows: Sequence[Row], options: Ppo
) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
    """Advantages and returns of each row's trained tokens, float32, from their values and rewards.

    delta_t = r_t + gamma V_{t+1} - V_t and A_t = delta_t + gamma lambda A_{t+1}, backwards over the trained tokens
    (Schulman et al., arXiv 1506.02438); R_t = A_t + V_t. Behind a row's last trained token the value is 0: an episode
    that was cut off at its budget ended there too, and whether a token ends a text is never guessed from padding.
    """
    advantages, returns = {}, {}
    for i, value in values.items():
        advantages[i] = _backwards(value.astype(np.float64), rewards[i], options)
        returns[i] = (advantages[i] + value).astype(np.float32)
    if options.normalise:
        advantages = _normalised(advantages, rows)
    return {i: one.astype(np.float32) for i, one in advantages.items()}, returns


def _backwards(value: np.ndarray, reward: np.ndarray, options: Ppo) -> np.ndarray:
    delta: np.ndarray = reward + options.gamma * np.append(value[1:], 0.0) - value
    advantage: np.ndarray = np.empty_like(delta)
    later = 0.0
    for t in range(len(delta) - 1, -1, -1):
        advantage[t] = later = delta[t] + options.gamma * options.gae_lambda * later
    return advantage


def _normalised(advantages: Mapping[int, np.ndarray], rows: Sequence[Row]) -> dict[int, np.ndarray]:
    """To mean 0 and deviation 1. Every episode weighs the same, however many tokens and rows it has."""
    episodes = {i: rows[i].episode for i in advantages}
    tokens: Counter[str] = Counter()
    for i, one in advantages.items():
        tokens[episodes[i]] += len(one)
    weights = np.concatenate([np.full(len(one), 1 / tokens[episodes[i]]) for i, one in advantages.items()])
    every = np.concatenate(list(advantages.values()))
    mean = np.average(every, weights=weights)
    deviation = np.sqrt(np.average((every - mean) ** 2, weights=weights))
    return {i: (one - mean) / (deviation + 1e-8) for i, one in advantages.items()}
