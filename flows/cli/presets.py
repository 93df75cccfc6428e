"""What a quickstart does with each model, sized for two cores without a GPU."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Preset:
    """Parameters of the quickstart flow, and what to tell beforehand."""

    expectation: str
    parameters: dict[str, Any] = field(default_factory=dict)


TINY = Preset(
    "tiny (2.8 M parameters): about ten minutes on two cores. Of held-out search problems it solves none at first, about a "
    "quarter after the warm start and half after the rounds, with noise of some 5 points; of swe the easiest.",
    {
        # Few: the warm start shows the tools, the rounds do the teaching.
        "demonstrations": {"search": 120, "swe": 60},
        "problems": {"search": 60, "swe": 12},
        "held_out": {"search": 64, "swe": 16},
        "samples": 5,  # many problems rather than large groups: what is learnt must carry over
        "evaluate_samples": 2,
        "max_difficulty": 0.35,
    },
)
SMOLLM2 = Preset(
    "smollm2 (135 M parameters): the same loop with a real language model, a quarter of an hour for two rounds on two cores. It "
    "samples some 100 tokens a second and trains on 180, so the sets are small and the curve of 20 episodes a stage is noisy.",
    {
        "demonstrations": {"search": 80, "swe": 16},
        "problems": {"search": 8, "swe": 2},
        "held_out": {"search": 16, "swe": 6},  # the gate asks for four of each kind that could be scored
        "samples": 4,
        "max_difficulty": 0.35,
        "warm_start_rate": 1e-4,  # tiny's rates are ten times what a model of this size bears
        "learning_rate": 2e-5,
    },
)


def preset(model: str) -> Preset:
    """The preset of a model; any other model folder gets the larger model's."""
    return TINY if model == "tiny" else SMOLLM2
