"""The weight-sync proof: an engine that says it serves version V really serves V's weights.

On a probe set (`tasks.training.probe_set`) the served log-probs must agree with those the trainer computes from the same
weights, token by token, at temperature 1 and at another one, and be nearer to them than to those served before. The second
half catches the reload that answers OK and changes nothing; it is only asked for where the two versions differ on the probe
at all.

At temperature 1 the engine scores the prompt, past its caches. At the other one it is asked for the next token's
distribution after a part of a sequence, which is the way that sampling takes: a temperature that is not applied, or a prefix
cache of other weights, shows there.
"""

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from tasks.serving.engine import Engine
from tasks.serving.errors import ProbeError
from tasks.training.probe_set import TEMPERATURE, Heated, Probe, read

MEAN_BOUND = 2e-3  # nats; measured with float32 on both sides: 2e-7 on average, 1e-6 at most
MAX_BOUND = 2e-2
SAME = 3e-5  # nats on average; weights closer to those before than this can not be told apart from them
AT_ONCE = 8  # requests: the engine batches them

Scores = list[list[float]]  # per sequence the log-probs of its tokens after the first, in nats


@dataclass(frozen=True)
class Scored:
    """A probe set under some weights."""

    plain: Scores
    heated: list[float]  # of every heated token of the set, in its order

    @classmethod
    def trained(cls, probes: Sequence[Probe]) -> "Scored":
        """As the trainer gives it."""
        return cls([probe.logprobs for probe in probes], [one.logprob for probe in probes for one in probe.heated])

    @property
    def damaged(self) -> bool:
        """Whether a log-prob is no number: nothing can be compared with it."""
        return not all(map(math.isfinite, [*chain(*self.plain), *self.heated]))


class Proof(BaseModel):
    """What was compared and what came out. Differences are absolute, in nats per token."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int
    sequences: int
    tokens: int
    longest: int  # tokens of the longest sequence
    heated_tokens: int  # of `tokens`, those at the other temperature
    temperature: float  # the other one
    mean_difference: float  # served against the trainer's
    max_difference: float
    mean_movement: float | None  # served against served before; None when there was no version before
    changed: bool | None  # whether the new weights can be told apart from those before on this probe
    passed: bool
    reason: str  # one sentence, for people
    swap: str = ""  # how requests in flight were treated
    swap_s: float | None = None  # seconds generation stood still
    held_s: float | None = None  # seconds the gateway began no call, the proof included
    tokenizer: str = ""  # digest of the one that the engine and the version share


def served(engine: Engine, probes: Sequence[Probe]) -> Scored:
    """What the engine gives to the probe set now."""

    def heat(work: tuple[Probe, Heated]) -> float:
        probe, one = work
        found = engine.likely(probe.token_ids[: one.place + 1], TEMPERATURE)
        return found.get(one.token, min(found.values()))  # an unlikely token has at most the least one's log-prob

    with ThreadPoolExecutor(AT_ONCE) as pool:
        # First: scoring the whole would leave fresh caches, and hide those of other weights.
        heated = list(pool.map(heat, [(probe, one) for probe in probes for one in probe.heated]))
        plain = list(pool.map(lambda probe: engine.score(probe.token_ids), probes))
    return Scored(plain, heated)


def expected(folder: Path, sequences: Sequence[Sequence[int]], *, deadline_s: float = 300.0) -> list[Probe]:
    """These sequences as a probe set under the weights in `folder`; scored in a process of its own: it needs torch."""
    with tempfile.TemporaryDirectory(prefix="lakeloop-probe-") as scratch:
        probe, out = Path(scratch) / "probe.json", Path(scratch) / "scores.json"
        probe.write_text(json.dumps([list(sequence) for sequence in sequences]))
        command = [
            sys.executable,
            "-m",
            "tasks.training.score",
            "--model",
            str(folder),
            "--probe",
            str(probe),
            "--out",
            str(out),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=deadline_s, check=False)
        except subprocess.TimeoutExpired as error:
            raise ProbeError(f"scoring the probe with {folder} took longer than {deadline_s:.0f} s") from error
        found = read(out)
        if done.returncode != 0 or found is None:
            raise ProbeError(f"scoring the probe with {folder} failed:\n{done.stderr[-2000:]}")
        return found


def prove(now: Scored, trained: Scored, before: Scored | None, *, version: int) -> Proof:
    """Judge what is served `now` against the trainer's scores and what was served `before` the reload.

    Damaged weights before do not count: a good version must be able to follow them. ProbeError where the probe set is empty:
    nothing would be proven.
    """
    if not any(now.plain):
        raise ProbeError(
            "the probe set is empty, so nothing can be proven: give a probe.json with sequences, or none at all"
        )
    if before is not None and before.damaged:
        before = None
    gaps = [*differences(now.plain, trained.plain), *differences([now.heated], [trained.heated])]
    mean, largest = sum(gaps) / len(gaps), max(gaps)
    moved = None if before is None else _mean(now.plain, before.plain)
    apart = _mean(now.plain, trained.plain)
    due = None if before is None else _mean(trained.plain, before.plain)
    passed = False
    if now.damaged:
        reason = "served log-probs are no numbers: the weights are damaged, or give such where the engine computes less exactly"
    elif not (mean <= MEAN_BOUND and largest <= MAX_BOUND):  # so asked, what is no number is no agreement
        hot = max(gaps[len(gaps) - len(now.heated) :], default=0.0)
        where = f" (at temperature {TEMPERATURE} only)" if hot == largest and _within(now, trained) else ""
        reason = (
            f"served log-probs differ from the trainer's by {mean:.2g} nats on average, {largest:.2g} at most{where}"
        )
    elif due is not None and moved is not None and due > SAME and moved <= apart:
        reason = (
            f"served log-probs are no nearer to the trainer's ({apart:.2g} nats on average) than to those served before "
            f"({moved:.2g}): they did not move by the {due:.2g} they should have, and the engine has the old weights"
        )
    elif due is not None and due <= SAME:
        passed = True
        reason = (
            "served log-probs agree with the trainer's, and these weights give the same ones as those served before"
        )
    else:
        passed = True
        reason = f"served log-probs agree with the trainer's within {largest:.2g} nats"
    return Proof(
        version=version,
        sequences=len(now.plain),
        tokens=len(gaps),
        longest=max(map(len, now.plain)) + 1,
        heated_tokens=len(now.heated),
        temperature=TEMPERATURE,
        mean_difference=mean,
        max_difference=largest,
        mean_movement=moved,
        changed=None if due is None else due > SAME,
        passed=passed,
        reason=reason,
    )


def _within(now: Scored, trained: Scored) -> bool:
    gaps = differences(now.plain, trained.plain)
    return sum(gaps) / len(gaps) <= MEAN_BOUND and max(gaps) <= MAX_BOUND


def _mean(left: Scores, right: Scores) -> float:
    found = differences(left, right)
    return sum(found) / len(found)


def differences(left: Scores, right: Scores) -> list[float]:
    """Absolute differences in nats, token by token, of two scorings of one probe."""
    if [len(row) for row in left] != [len(row) for row in right]:
        raise ValueError("the two sets of log-probs are not of the same probe")
    return [abs(a - b) for row_a, row_b in zip(left, right, strict=True) for a, b in zip(row_a, row_b, strict=True)]
