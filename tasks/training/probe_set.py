"""The probe set of the weight-sync proof: fixed token sequences with the log-probs that the trainer gives them.

Sequences of several lengths, up to the model's context where that is cheap, since weights that are right at short positions
can be wrong at long ones (rotary scaling, sliding windows). Every token is scored at temperature 1, and some, from the first
to the last, also at another temperature, as sampling sees them. Imports no torch: serving reads it.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

TEMPERATURE = 0.7  # the other one
SHORTEST = 16  # tokens of the shortest sequence that is made up
PLACES = 4  # of a sequence that are scored at it
LIKELY = 0.1  # a token with more than this probability is among the 20 that an engine tells of
CHEAP_ON_CPU = 2**33  # tokens times parameters: a forward pass of a second or so
CHEAP_ON_GPU = 2**44
ALWAYS = 256  # tokens that are not too dear for any model
LONGEST = 8192


class Heated(BaseModel):
    """A likely token after the first `place + 1` tokens of a sequence, with its log-prob at TEMPERATURE."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    place: int
    token: int
    logprob: float


class Probe(BaseModel):
    """One sequence. Log-probs in nats, each of a token given those before it; ValidationError for one that is no number."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    token_ids: list[int]
    logprobs: list[float]  # of token_ids[1:], at temperature 1
    heated: list[Heated]
    previous_logprobs: list[float] | None = None  # as `logprobs`, under the weights that training began with


ALL = TypeAdapter(list[Probe])


def read(file: Path) -> list[Probe] | None:
    """What a trainer left; None where there is none, it is of an earlier release, or nothing is scored at TEMPERATURE.

    So it is where a log-prob is no number: nothing can be proven against that.
    """
    try:
        found = ALL.validate_json(file.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
    return found if not found or any(probe.heated for probe in found) else None


def write(file: Path, probes: Sequence[Probe]) -> None:
    """As `read` reads it."""
    file.write_text(json.dumps([probe.model_dump() for probe in probes]))


def cut(probe: Probe, tokens: int) -> Probe:
    """Its first so many tokens: what comes later changes nothing of what the earlier ones are given."""
    if len(probe.token_ids) <= tokens:
        return probe
    return Probe(
        token_ids=probe.token_ids[:tokens],
        logprobs=probe.logprobs[: tokens - 1],
        heated=[one for one in probe.heated if one.place < tokens],
        previous_logprobs=probe.previous_logprobs and probe.previous_logprobs[: tokens - 1],
    )


def spread(candidates: Sequence[int]) -> list[int]:
    """At most PLACES of these, the first and the last among them."""
    last = len(candidates) - 1
    return sorted({candidates[last * n // (PLACES - 1)] for n in range(PLACES)}) if candidates else []


def affordable(parameters: int, context: int, *, accelerated: bool) -> int:
    """Tokens of the longest sequence: the whole context where a forward pass over it is cheap."""
    budget = CHEAP_ON_GPU if accelerated else CHEAP_ON_CPU
    return min(context, LONGEST, max(ALWAYS, budget // max(1, parameters)))
