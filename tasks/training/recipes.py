"""Vetted settings per objective, for models that train on a laptop. Imports no torch."""

from typing import Any

RECIPES: dict[str, dict[str, Any]] = {
    "sft": {"learning_rate": 1e-3, "epochs": 3, "minibatch": 32, "schedule": "cosine", "warmup_steps": 4},
    # The engine's own log-probs are the ratio's denominator: it agrees with the trainer to 1e-6, and a forward pass is saved.
    "grpo": {"learning_rate": 1e-4, "epochs": 2, "minibatch": 40, "grpo": {"proximal": "behaviour"}},
}
