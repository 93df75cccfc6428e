"""What a judge gives: a verdict that is a score, a refusal, or no verdict at all. Three things, and none of them a zero."""

import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from lakehouse.trajectory import Trajectory

LONGEST_REASON = 4000  # characters
JUDGES = ("llm ", "function ")  # how a judge's `producer` begins: no judge is shown what another said


class JudgeFailed(Exception):
    """No answer could be had: unreachable, overloaded, too late. Nothing is written, and the next run asks again."""


class JudgeMisconfigured(ValueError):
    """No episode could be judged like this; the message says what to change."""


class Verdict(BaseModel):
    """What a judge answers. `score` None: it cannot tell, or will not. Other keys are kept as they are."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    score: float | None
    reason: str = ""

    @field_validator("score", mode="before")
    @classmethod
    def _number(cls, score: Any) -> Any:
        if isinstance(score, int | float) and not isinstance(score, bool) and not math.isfinite(score):
            raise ValueError("a score is finite")
        return score


@dataclass(frozen=True)
class Measured:
    """One judge's answer about one episode. `value` is what becomes evidence; it holds `status` and `score` too."""

    status: Literal["scored", "refused", "malformed"]
    value: dict[str, Any]


class Judge(Protocol):
    """Asks about episodes, several at a time. Use as an async context manager."""

    @property
    def producer(self) -> str:
        """Program, model and all that is asked, as a digest: another producer asks anew."""
        ...

    async def ask(self, trajectory: Trajectory) -> Measured:
        """JudgeFailed where no answer could be had, JudgeMisconfigured where none ever will be."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *error: object) -> None: ...


def scored(verdict: Verdict, **about: Any) -> Measured:
    """A well-formed verdict: a score, or a refusal where it has none."""
    status: Literal["scored", "refused"] = "refused" if verdict.score is None else "scored"
    told = verdict.model_dump() | {"reason": verdict.reason[:LONGEST_REASON]}
    return Measured(status, told | about | {"status": status})


def refused(reason: str, **about: Any) -> Measured:
    return Measured("refused", {"score": None, "reason": reason[:LONGEST_REASON], **about, "status": "refused"})


def malformed(cause: str, answer: str, **about: Any) -> Measured:
    """An answer that is no verdict; the beginning of it is kept."""
    return Measured(
        "malformed",
        {"score": None, "reason": cause, "answer": answer[:LONGEST_REASON], **about, "status": "malformed"},
    )


def cause(error: ValidationError) -> str:
    """The first thing that is wrong, in few words."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the answer'}: {first['msg']}"
