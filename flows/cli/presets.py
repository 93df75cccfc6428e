"""What a quickstart does with each model, sized for two cores without a GPU."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Preset:
    """Parameters of the quickstart flow, and what to tell beforehand."""

    expectation: str
    parameters: dict[str, Any] = field(default_factory=dict)


TINY = Preset(
    "tiny (2.8 M parameters): about ten minutes on two cores. Of held-out search problems it solves none at first, up to a "
    "quarter after the warm start and about half after the rounds, with noise of some 5 points.",
    {
        # Few: the warm start shows the tools, the rounds do the teaching.
        "demonstrations": {"search": 120, "swe": 60},
        "problems": {"search": 72, "swe": 4},
        "held_out": {"search": 64, "swe": 12},
        "samples": 5,  # many problems rather than large groups: what is learnt must carry over
        "evaluate_samples": 2,
        "max_difficulty": 0.35,
    },
)
SMOLLM2 = Preset(
    "smollm2 (135 M parameters): the same loop with a real language model, an hour or more on two cores. "
    "A training step takes about 16 s per 512 tokens and rank, so the sets are small and the curve is noisy.",
    {
        "demonstrations": {"search": 24, "swe": 8},
        "problems": {"search": 4, "swe": 1},
        "held_out": {"search": 16, "swe": 4},
        "samples": 4,
        "warm_start_rate": 2e-5,  # tiny's rates are fifty times what a model of this size bears
        "learning_rate": 1e-5,
    },
)


def preset(model: str) -> Preset:
    """The preset of a model; any other model folder gets the larger model's."""
    return TINY if model == "tiny" else SMOLLM2
