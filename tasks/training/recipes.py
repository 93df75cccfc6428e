"""Vetted settings per objective, for models that train on a laptop. Imports no torch."""

from typing import Any

RECIPES: dict[str, dict[str, Any]] = {
    "sft": {"learning_rate": 1e-3, "epochs": 3, "minibatch": 32, "schedule": "cosine", "warmup_steps": 4},
    "grpo": {"learning_rate": 1e-4, "epochs": 2, "minibatch": 64},
}
