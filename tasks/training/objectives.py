"""What each objective can be told, what it needs and which advantages fit it. Imports no torch: forms and flows read it.

The formulas are in `losses/`, a file for each.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Estimator = Literal["none", "grpo"]
Aggregation = Literal["token", "sequence"]
Need = Literal["behaviour"]


class Options(BaseModel):
    """Immutable; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Objective(Options):
    """What every objective says of itself.

    `aggregation`: what a token of the loss weighs. "token": every trained token of a step the same. "sequence": every episode
    the same, whatever its length and however many rows it makes.
    """

    name: str
    needs: ClassVar[frozenset[Need]] = frozenset()
    estimators: ClassVar[tuple[Estimator, ...]]  # of the advantages that fit, the default first
    aggregation: Aggregation = "token"


class Sft(Objective):
    """Supervised fine-tuning: `losses/sft.py`."""

    name: Literal["sft"] = "sft"
    estimators = ("none",)


class Clipped(Objective):
    """Bounds of the ratio pi / pi_proximal, beyond which a token has no gradient."""

    clip_low: float = Field(default=0.2, ge=0, lt=1, description="The ratio is clipped below at 1 - clip_low.")
    clip_high: float = Field(default=0.2, ge=0, description="The ratio is clipped above at 1 + clip_high.")


class Grpo(Clipped):
    """Group relative policy optimisation: `losses/grpo.py`."""

    name: Literal["grpo"] = "grpo"
    needs = frozenset({"behaviour"})
    estimators = ("grpo",)
    aggregation: Aggregation = "sequence"
    negative_scale: float = Field(
        default=1.0, ge=0, le=1, description="Factor on negative advantages: 1 is GRPO, 0 learns from successes only."
    )


class Truncate(Options):
    """The weight proximal/behaviour of a token, at most `high`."""

    name: Literal["truncate"] = "truncate"
    high: float = Field(default=2.0, gt=0, description="Truncation of the weight proximal/behaviour.")


def default_correction(settings: dict[str, Any]) -> Truncate | None:
    """Truncated weights wherever the proximal policy is not the one that sampled."""
    there = "behaviour" in getattr(settings.get("objective"), "needs", ())
    return Truncate() if there and settings.get("proximal") == "recomputed" else None


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


ObjectiveName = Literal["sft", "grpo"]
AnyObjective = Annotated[Sft | Grpo, Field(discriminator="name"), BeforeValidator(_named)]
AnyCorrection = Annotated[Truncate, BeforeValidator(_named)]
