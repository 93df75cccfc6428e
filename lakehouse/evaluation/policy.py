"""A gate policy: a TOML file that says what a version must keep to be promoted, and what happens where it does not.

when_refused = "roll_back"
[[rules]]
metric = "success_difference_high"
operator = ">="
bound = 0.0
per_kind = true
"""

import difflib
import operator
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lakehouse.evaluation.exam import Exam
from lakehouse.evaluation.metrics import METRICS
from lakehouse.records import digest

SHIPPED = Path(__file__).parent / "policies"
OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt, "==": operator.eq,
}  # fmt: skip

WhenRefused = Literal["roll_back", "go_on", "ask"]


class PolicyError(ValueError):
    """A policy's file is not there, or not a policy; the message names what is wrong and what there is."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Rule(_Part):
    """What a metric must keep."""

    metric: str = Field(description="A name of `METRICS`.")
    operator: str = Field(description="How the metric must stand to the bound.")
    bound: float = Field(allow_inf_nan=False)
    per_kind: bool = Field(default=False, description="For each kind of problem besides the total.")
    if_missing: Literal["refuse", "pass"] = Field(default="refuse", description="Where the metric cannot be measured.")
    why: str = Field(default="", description="What breaking it means, for people.")

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.metric not in METRICS:
            raise ValueError(f"no metric {self.metric!r}{_near(self.metric, METRICS)}; there are {', '.join(METRICS)}")
        if self.operator not in OPERATORS:
            raise ValueError(f"no operator {self.operator!r}; there are {' '.join(OPERATORS)}")
        if self.per_kind and not METRICS[self.metric].per_kind:
            raise ValueError(f"{self.metric} is of the version and not of a kind of problem: leave out per_kind")
        return self

    @property
    def text(self) -> str:
        """The rule as people write it."""
        return f"{self.metric} {self.operator} {self.bound:g}"

    def holds(self, value: float) -> bool:
        """Whether a value keeps it."""
        return OPERATORS[self.operator](value, self.bound)


class OffPolicy(_Part):
    """When an estimate from the champion's episodes counts."""

    min_effective_samples: float = Field(default=32, gt=1, description="Fewer, and there is no estimate.")


class Policy(_Part):
    """A policy as it was read. `text` is the file, `digest` of it."""

    when_refused: WhenRefused = Field(description="roll_back, go_on or ask.")
    confidence: float = Field(default=0.95, gt=0.5, lt=1, description="Of every interval.")
    resamples: int = Field(default=10_000, ge=1000, le=1_000_000, description="Of the bootstrap.")
    min_pairs: int = Field(default=16, ge=2, description="Fewer pairs decide nothing: the version is not promoted.")
    min_problems: int = Field(default=4, ge=2, description="With a pair, of each kind that a rule is about.")
    adjust_kinds: bool = Field(
        False, description="Widen the intervals of kinds so that all hold together (Bonferroni)."
    )
    exam: Exam = Field(default=Exam(), description="What is played where nobody says otherwise.")
    offpolicy: OffPolicy | None = Field(default=None, description="Estimate before the candidate plays.")
    rules: list[Rule] = Field(min_length=1)
    text: Annotated[str, Field(exclude=True)] = ""

    @property
    def digest(self) -> str:
        return digest(self.text)[:16]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        asked = [rule.metric for rule in self.rules if _estimated(rule.metric)]
        if asked and self.offpolicy is None:
            raise ValueError(f"a rule about {asked[0]} needs a table [offpolicy]: without it nothing is estimated")
        if self.offpolicy is not None and self.exam.temperature == 0:
            raise ValueError(
                "[offpolicy] weighs by log-probs, which say nothing at temperature 0: leave one of them out"
            )
        return self

    @property
    def before_playing(self) -> list[Rule]:
        """The rules about the estimate, which can refuse before the candidate plays."""
        return [rule for rule in self.rules if _estimated(rule.metric)]


def read(name: str) -> Policy:
    """The shipped policy of this name, or the one in a file. PolicyError says what is wrong with it."""
    path = SHIPPED / f"{name}.toml" if "/" not in name and not name.endswith(".toml") else Path(name).expanduser()
    try:
        return parse(path.read_text(encoding="utf-8"), str(name))
    except FileNotFoundError:
        there = ", ".join(sorted(file.stem for file in SHIPPED.glob("*.toml")))
        raise PolicyError(f"no gate policy {name!r}: name a file NAME.toml, or one of those shipped: {there}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"gate policy {name} cannot be read: {error}") from error


def parse(text: str, name: str = "policy") -> Policy:
    """A policy from its text. `name` is for messages."""
    try:
        told = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"gate policy {name} is not TOML: {error}") from error
    if "text" in told:
        raise PolicyError(_unknown(name, ("text",)))
    try:
        return Policy.model_validate(told | {"text": text})
    except ValidationError as error:
        raise PolicyError("; ".join(_said(name, one) for one in error.errors())) from error


def _said(name: str, error: Any) -> str:
    place: tuple[Any, ...] = error["loc"]
    if error["type"] == "extra_forbidden":
        return _unknown(name, place)
    what = error["msg"].removeprefix("Value error, ")
    return f"gate policy {name}: {_place(place)}{what}"


def _unknown(name: str, place: tuple[Any, ...]) -> str:
    """The message for a key that is not one, with those of its table."""
    tables: dict[str, type[BaseModel]] = {"rules": Rule, "exam": Exam, "offpolicy": OffPolicy}
    fields = [key for key in tables.get(str(place[0]) if len(place) > 1 else "", Policy).model_fields if key != "text"]
    key = str(place[-1])
    return f"gate policy {name}: {_place(place[:-1])}no key {key!r}{_near(key, fields)}; there are {', '.join(fields)}"


def _place(place: tuple[Any, ...]) -> str:
    """Where in the file: "rule 2: " counts from one, as people do."""
    if not place:
        return ""
    if place[0] == "rules" and len(place) > 1:
        rest = ".".join(map(str, place[2:]))
        return f"rule {int(place[1]) + 1}: {rest + ': ' if rest else ''}"
    return ".".join(map(str, place)) + ": "


def _near(name: str, known: Any) -> str:
    found = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean {found[0]}?)" if found else ""


def _estimated(metric: str) -> bool:
    return metric.startswith("offpolicy_") or metric == "effective_samples"
