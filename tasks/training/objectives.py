"""What each objective can be told, what it needs and which advantages fit it. Imports no torch: forms and flows read it.

The formulas are in `losses/`, a file for each.
"""

from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from lakehouse.selection.estimators import Estimator

Aggregation = Literal["token", "sequence", "sum", "pair"]
Need = Literal["behaviour", "reference", "teacher", "critic", "pairs"]
Level = Literal["token", "sequence", "geometric"]
Estimate = Literal["k1", "k2", "k3"]
Proximal = Literal["recomputed", "behaviour", "approximated"]


class Options(BaseModel):
    """Immutable; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Objective(Options):
    """What every objective says of itself.

    `aggregation`: what a token of the loss weighs. token: every trained token of a step the same. sequence: every episode the
    same, by the mean of its tokens. sum: every episode by the sum of its tokens. pair: the sum over pairs, divided by their number.
    """

    needs: ClassVar[frozenset[Need]] = frozenset()
    estimators: ClassVar[tuple[Estimator, ...]]  # of the advantages that fit, the default first
    filter: ClassVar[str] = "grpo"  # of the selection, where none is asked for
    action: ClassVar[Level] = "token"  # what the ratio is of
    aggregation: Aggregation = "token"


class Sft(Objective):
    """Supervised fine-tuning: `losses/sft.py`."""

    name: Literal["sft"] = "sft"
    estimators = ("none",)
    filter = "sft"
    aggregation: Literal["token", "sequence"] = "token"


class Dpo(Objective):
    """Direct preference optimisation: `losses/dpo.py`."""

    name: Literal["dpo"] = "dpo"
    needs = frozenset({"pairs", "reference"})
    estimators = ("pairs",)
    aggregation: Literal["pair"] = "pair"
    beta: float = Field(default=0.1, gt=0, description="Strength of the pull towards the reference.")
    label_smoothing: float = Field(
        default=0.0, ge=0, lt=0.5, description="Share of pairs that are the wrong way round."
    )


class PolicyGradient(Objective):
    """What a policy sampled is made likelier or less likely, by its advantage."""

    needs: ClassVar[frozenset[Need]] = frozenset({"behaviour"})
    aggregation: Literal["token", "sequence"] = "token"
    negative_scale: float = Field(
        default=1.0, ge=0, le=1, description="Factor on negative advantages: 0 learns from successes only."
    )


class Clipped(PolicyGradient):
    """Bounds of the ratio pi / pi_proximal, beyond which a token has no gradient."""

    clip_low: float = Field(default=0.2, ge=0, lt=1, description="The ratio is clipped below at 1 - clip_low.")
    clip_high: float = Field(default=0.2, ge=0, description="The ratio is clipped above at 1 + clip_high.")


class Grpo(Clipped):
    """Group relative policy optimisation: `losses/grpo.py`."""

    name: Literal["grpo"] = "grpo"
    estimators = ("grpo",)
    aggregation: Literal["token", "sequence"] = "sequence"


class DrGrpo(Clipped):
    """GRPO without the two divisions that bias it: `losses/dr_grpo.py`."""

    name: Literal["dr_grpo"] = "dr_grpo"
    estimators = ("dr_grpo",)
    aggregation: Literal["sum"] = "sum"  # type: ignore[assignment]
    budget: int = Field(
        default=512, ge=1, description="What an episode's tokens are divided by: the most it may sample."
    )


class Dapo(Clipped):
    """Clip-higher and a mean over tokens: `losses/dapo.py`."""

    name: Literal["dapo"] = "dapo"
    estimators = ("grpo",)
    clip_high: float = Field(
        default=0.28, ge=0, description="The ratio is clipped above at 1 + clip_high (clip-higher)."
    )


class Rloo(Clipped):
    """REINFORCE with a leave-one-out baseline: `losses/rloo.py`."""

    name: Literal["rloo"] = "rloo"
    estimators = ("rloo",)
    action = "sequence"
    aggregation: Literal["sum"] = "sum"  # type: ignore[assignment]


class ReinforcePp(Clipped):
    """REINFORCE++: `losses/reinforce_pp.py`."""

    name: Literal["reinforce_pp"] = "reinforce_pp"
    estimators = ("reinforce_pp", "reinforce_pp_baseline")
    filter = "fresh"


class Gspo(Clipped):
    """Group sequence policy optimisation: `losses/gspo.py`."""

    name: Literal["gspo"] = "gspo"
    action = "geometric"
    estimators = ("grpo", "dr_grpo", "rloo")
    aggregation: Literal["token", "sequence"] = "sequence"
    clip_low: float = Field(
        default=3e-4, ge=0, lt=1, description="The sequence's ratio is clipped below at 1 - clip_low."
    )
    clip_high: float = Field(default=4e-4, ge=0, description="The sequence's ratio is clipped above at 1 + clip_high.")


class Cispo(PolicyGradient):
    """Clipped importance weights: `losses/cispo.py`."""

    name: Literal["cispo"] = "cispo"
    estimators = ("grpo", "dr_grpo", "rloo")
    ratio_low: float = Field(default=0.0, ge=0, description="Smallest weight pi / pi_proximal; 0 for no bound.")
    ratio_high: float = Field(default=5.0, gt=0, description="Largest weight pi / pi_proximal.")


class Sapo(PolicyGradient):
    """Soft adaptive policy optimisation: `losses/sapo.py`."""

    name: Literal["sapo"] = "sapo"
    estimators = ("grpo", "dr_grpo", "rloo")
    aggregation: Literal["token", "sequence"] = "sequence"
    tau_positive: float = Field(default=1.0, gt=0, description="Sharpness of the gate where the advantage is positive.")
    tau_negative: float = Field(default=1.05, gt=0, description="Sharpness of the gate where it is negative.")


class Ppo(Clipped):
    """Proximal policy optimisation with a value head: `losses/ppo.py`."""

    name: Literal["ppo"] = "ppo"
    needs = frozenset({"behaviour", "critic"})
    estimators = ("reward",)
    filter = "fresh"
    gamma: float = Field(default=1.0, gt=0, le=1, description="Discount per token.")
    gae_lambda: float = Field(default=0.95, ge=0, le=1, description="Generalised advantage estimation's lambda.")
    normalise: bool = Field(
        default=True, description="Advantages to mean 0 and deviation 1, every episode weighing the same."
    )
    value_clip: float = Field(default=0.2, gt=0, description="How far a value may move from the old one, either way.")
    value_coefficient: float = Field(default=0.1, gt=0, description="Weight of the value head's loss.")


class DecoupledPpo(Clipped):
    """Decoupled PPO: `losses/decoupled_ppo.py`."""

    name: Literal["decoupled_ppo"] = "decoupled_ppo"
    estimators = ("grpo", "dr_grpo", "rloo", "reinforce_pp", "reinforce_pp_baseline")


class Distill(Objective):
    """On-policy distillation: `losses/distill.py`."""

    name: Literal["distill"] = "distill"
    needs = frozenset({"behaviour", "teacher"})
    estimators = ("none",)
    filter = "fresh"
    aggregation: Literal["token", "sequence"] = "token"
    clip_advantage: float = Field(default=10.0, gt=0, description="Most that a token's advantage may be, in nats.")


class Truncate(Options):
    """Truncated importance sampling: the weight, but at most `high`."""

    name: Literal["truncate"] = "truncate"
    level: Level = Field(default="token", description="Of the token, of its whole sequence, or their geometric mean.")
    high: float = Field(default=2.0, gt=0, description="Largest weight proximal/behaviour.")


class Mask(Options):
    """Masked importance sampling: the weight, or 0 outside of its bounds."""

    name: Literal["mask"] = "mask"
    level: Level = Field(default="token", description="Of the token, of its whole sequence, or their geometric mean.")
    low: float = Field(default=0.0, ge=0, description="Smallest weight proximal/behaviour that is kept.")
    high: float = Field(default=2.0, gt=0, description="Largest weight proximal/behaviour that is kept.")


class IcePop(Options):
    """Tokens on which trainer and sampler disagree are left out, on both sides."""

    name: Literal["icepop"] = "icepop"
    low: float = Field(default=0.5, ge=0, lt=1, description="Smallest weight that is kept.")
    high: float = Field(default=5.0, gt=1, description="Largest weight that is kept.")


class KPop(Options):
    """Left out by binary KL divergence, in either direction."""

    name: Literal["kpop"] = "kpop"
    limit: float = Field(default=0.1, gt=0, description="Largest binary KL divergence, in nats, that is kept.")


class M2po(Options):
    """The farthest tokens are left out until the second moment is small."""

    name: Literal["m2po"] = "m2po"
    limit: float = Field(default=0.04, gt=0, description="Largest mean of squared log-ratios over the step, in nats^2.")


class Kl(Options):
    """A penalty on the distance to a reference policy: `losses/kl.py`."""

    estimator: Estimate = Field(
        default="k3", description="k1 is taken from the advantage; k2 and k3 are added to the loss."
    )
    coefficient: float = Field(gt=0, description="Weight of the penalty, per nat.")
    unbiased: bool = Field(
        default=False, description="k3 times pi / pi_proximal: its gradient is then the divergence's."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.unbiased and self.estimator != "k3":
            raise ValueError(f"kl unbiased with {self.estimator}: it is k3's gradient that is biased, take k3")
        return self


def default_correction(settings: dict[str, Any]) -> Truncate | None:
    """Truncated weights wherever the proximal policy is not the one that sampled, of what the objective's ratio is of."""
    objective = settings.get("objective")
    if not isinstance(objective, Objective) or settings.get("proximal") == "behaviour":
        return None
    return Truncate(level=objective.action) if "behaviour" in objective.needs else None


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


_Objectives = Sft | Dpo | Grpo | DrGrpo | Dapo | Rloo | ReinforcePp | Gspo | Cispo | Sapo | Ppo | DecoupledPpo | Distill
_Corrections = Truncate | Mask | IcePop | KPop | M2po

OBJECTIVES: dict[str, type[Objective]] = {one.model_fields["name"].default: one for one in get_args(_Objectives)}
ObjectiveName = Literal[
    "sft",
    "dpo",
    "grpo",
    "dr_grpo",
    "dapo",
    "rloo",
    "reinforce_pp",
    "gspo",
    "cispo",
    "sapo",
    "ppo",
    "decoupled_ppo",
    "distill",
]
AnyObjective = Annotated[_Objectives, Field(discriminator="name"), BeforeValidator(_named)]
AnyCorrection = Annotated[_Corrections, Field(discriminator="name"), BeforeValidator(_named)]
