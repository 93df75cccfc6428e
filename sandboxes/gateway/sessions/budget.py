"""Budgets of a session: how much an agent may ask of the model. Set when the session starts, checked at every call."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from lakehouse.records import Status, now
from sandboxes.gateway.errors import BadRequest, Busy
from sandboxes.gateway.sessions.flight import Flight
from sandboxes.gateway.sessions.recorded import Recorded


class Limits(BaseModel):
    """What one session may use at most; None is no limit. Calls that failed through no fault of the agent are free."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    max_calls: int | None = Field(default=None, ge=1)  # each choice of n counts
    max_prompt_tokens: int | None = Field(default=None, ge=1)  # summed over calls; each choice of n is one
    max_sampled_tokens: int | None = Field(default=None, ge=1)  # summed over calls
    max_concurrency: int | None = Field(default=None, ge=1)  # requests at a time
    max_wall_s: float | None = Field(default=None, gt=0)  # from the start of the session to the start of a call


class Budget:
    """One session's limits and what is used of them."""

    def __init__(self, limits: Limits, calls: Sequence[Recorded], started_at: datetime) -> None:
        self.limits = limits
        self._calls = calls
        self._started_at = started_at

    @property
    def used(self) -> dict[str, float]:
        """By the names of the limits, without the concurrency."""
        counted = [call for call in self._calls if call.answer is None or call.answer.status != Status.INFRA_ERROR]
        return {
            "max_calls": len(counted),
            "max_prompt_tokens": sum(len(call.intent.prompt_token_ids) for call in counted),
            "max_sampled_tokens": sum(len(call.answer.completion_token_ids) for call in counted if call.answer),
            "max_wall_s": (now() - self._started_at).total_seconds(),
        }

    def check(self, flights: Collection[Flight], *, choices: int = 1) -> None:
        """Before a call. Busy where waiting for a running one helps; BadRequest where a budget is used up."""
        limits = self.limits
        if limits.max_concurrency is not None and len(flights) >= limits.max_concurrency:
            raise Busy(
                f"{len(flights)} calls of this session are running and its limit max_concurrency is "
                f"{limits.max_concurrency}; wait for one to end"
            )
        if limits == Limits(max_concurrency=limits.max_concurrency):
            return
        used = self.used
        waiting = sum(flight.choices for flight in flights if not flight.calls)  # not dispatched yet
        calls = int(used.pop("max_calls")) + waiting
        if limits.max_calls is not None and calls + choices > limits.max_calls:
            asked = f" and this request has {choices} choices" if choices > 1 else ""
            raise _spent("max_calls", limits.max_calls, f"{calls} are used{asked}")
        for name, value in used.items():
            limit = getattr(limits, name)
            if limit is not None and value >= limit:
                raise _spent(name, limit, f"{value:g} are used")

    def fit(self, prompt: Sequence[int], sampling: dict[str, Any], *, choices: int = 1) -> None:
        """Before dispatch: BadRequest for a prompt beyond its budget; `max_tokens` is cut to what is left.

        A call that was cut ends with finish reason `length`. Calls that run side by side are each cut to what was left
        when they began.
        """
        limits = self.limits
        if limits.max_prompt_tokens is not None:
            before = int(self.used["max_prompt_tokens"])
            if before + choices * len(prompt) > limits.max_prompt_tokens:
                times = f", {choices} times for as many choices" if choices > 1 else ""
                used = f"{before} are used and this prompt has {len(prompt)}{times}"
                raise _spent("max_prompt_tokens", limits.max_prompt_tokens, used)
        if limits.max_sampled_tokens is not None:
            left = (limits.max_sampled_tokens - int(self.used["max_sampled_tokens"])) // choices
            if left < 1:
                used = f"{self.used['max_sampled_tokens']:g} are used"
                raise _spent("max_sampled_tokens", limits.max_sampled_tokens, used)
            # As the engine resolved it, or, on the chat route, as the client named it; engines take the newer name first.
            name = "max_completion_tokens" if sampling.get("max_completion_tokens") else "max_tokens"
            sampling[name] = min(sampling.get(name) or left, left)


def _spent(name: str, limit: float, used: str) -> BadRequest:
    return BadRequest(
        f"this session's budget is used up: its limit {name} is {limit:g}; {used}",
        param=name,
        code="budget_exhausted",
    )
